// Backend::attention against a naive double-precision softmax over the same cached numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/input_rounding.h"
#include "support/paged_kv.h"
#include "support/sanitized.h"

namespace vernier::test {
namespace {

struct AttentionCase {
  const char* name;
  KvSpec kv;
  std::int32_t num_heads = 4;
  float scale = 0.25F;
  float soft_cap = 0.0F;
  std::int32_t window = 0;
  bool sinks = false;
  float magnitude = 1.0F;  ///< of queries
  Precision precision = Precision::kBf16;
};

/// A sequence for the tests: all of its tokens' q, k and v, and where it is cached.
struct TestSequence {
  std::int64_t length = 0;
  std::vector<std::int32_t> pages;
  std::vector<float> q;  ///< [length, heads * head_dim]
};

/// Fills positions [0, length) of the cache through rope_and_store_kv, without norm or rotation.
TestSequence make_sequence(Backend& backend, PagedKv& cache, const AttentionCase& test, std::int64_t length,
                           std::uint64_t seed) {
  Random random(seed);
  TestSequence sequence;
  sequence.length = length;
  sequence.pages = cache.take_pages(length);
  sequence.q = random.floats(length * test.num_heads * test.kv.head_dim, test.magnitude);
  const std::int64_t kv_cols = std::int64_t{test.kv.num_kv_heads} * test.kv.head_dim;
  const TestMatrix q(backend, length, std::int64_t{test.num_heads} * test.kv.head_dim, sequence.q);
  const TestMatrix k(backend, length, kv_cols, random.floats(length * kv_cols, 2.0F));
  const TestMatrix v(backend, length, kv_cols, random.floats(length * kv_cols, 2.0F));
  const SequenceSlice slice = {.first_row = 0,
                               .num_tokens = static_cast<std::int32_t>(length),
                               .past = 0,
                               .pages = sequence.pages,
                               .state_slot = 0};
  RopeStoreArgs args;
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  args.num_heads = test.num_heads;
  args.num_kv_heads = test.kv.num_kv_heads;
  args.head_dim = test.kv.head_dim;
  args.slices = {&slice, 1};
  args.kv = cache.layer();
  VN_EXPECT_OK(backend.rope_and_store_kv(args));
  return sequence;
}

struct CachedNumbers {
  std::vector<double> keys;
  std::vector<double> values;
};

/// One head of one token, and the sum of magnitudes for the bound.
void naive_attention(const AttentionCase& test, const TestSequence& sequence, const CachedNumbers& cached,
                     const std::vector<float>& sinks, std::int64_t position, std::int64_t head, double* y,
                     double* magnitude) {
  const std::int64_t dim = test.kv.head_dim;
  const std::int64_t kv_head = head * test.kv.num_kv_heads / test.num_heads;
  const float* q = sequence.q.data() + (position * test.num_heads + head) * dim;
  std::vector<double> scores(static_cast<std::size_t>(position) + 1, -std::numeric_limits<double>::infinity());
  double largest = test.sinks ? sinks[static_cast<std::size_t>(head)] : -std::numeric_limits<double>::infinity();
  for (std::int64_t p = 0; p <= position; ++p) {
    if (test.window > 0 && position - p >= test.window) continue;
    double score = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) {
      score += double{round_input(q[d], test.precision)} *
               cached.keys[kv_at(test.kv, sequence.pages, p, kv_head) + static_cast<std::size_t>(d)];
    }
    score *= test.scale;
    if (test.soft_cap > 0.0F) score = test.soft_cap * std::tanh(score / test.soft_cap);
    scores[static_cast<std::size_t>(p)] = score;
    largest = std::max(largest, score);
  }
  double total = test.sinks ? std::exp(sinks[static_cast<std::size_t>(head)] - largest) : 0.0;
  for (double& score : scores) total += score = std::exp(score - largest);
  for (std::int64_t d = 0; d < dim; ++d) {
    y[d] = magnitude[d] = 0.0;
    for (std::int64_t p = 0; p <= position; ++p) {
      const double weight = scores[static_cast<std::size_t>(p)] / total;
      if (weight == 0.0) continue;
      const double value = cached.values[kv_at(test.kv, sequence.pages, p, kv_head) + static_cast<std::size_t>(d)];
      y[d] += weight * value;
      magnitude[d] += weight * std::fabs(value);
    }
  }
}

std::vector<AttentionCase> cases() {
  const KvSpec plain;
  KvSpec odd = {.dtype = DType::kF32, .page_size = 5, .num_kv_heads = 1, .head_dim = 20, .num_pages = 64};
  KvSpec fp8 = {.dtype = DType::kF8E4M3, .page_size = 32, .num_kv_heads = 2, .head_dim = 24, .num_pages = 16};
  KvSpec large_pages = {.dtype = DType::kBF16, .page_size = 128, .num_kv_heads = 3, .head_dim = 64, .num_pages = 8};
  KvSpec wide = {.dtype = DType::kBF16, .page_size = 32, .num_kv_heads = 1, .head_dim = 256, .num_pages = 16};
  KvSpec wide_fp8 = {.dtype = DType::kF8E4M3, .page_size = 16, .num_kv_heads = 2, .head_dim = 80, .num_pages = 32};
  KvSpec head_128 = {.dtype = DType::kBF16, .page_size = 16, .num_kv_heads = 2, .head_dim = 128, .num_pages = 16};
  KvSpec fp8_128 = {.dtype = DType::kF8E4M3, .page_size = 16, .num_kv_heads = 2, .head_dim = 128, .num_pages = 16};
  KvSpec head_512 = {.dtype = DType::kBF16, .page_size = 16, .num_kv_heads = 2, .head_dim = 512, .num_pages = 16};
  KvSpec fp8_512 = {.dtype = DType::kF8E4M3, .page_size = 32, .num_kv_heads = 1, .head_dim = 512, .num_pages = 16};
  KvSpec head_320 = {.dtype = DType::kBF16, .page_size = 32, .num_kv_heads = 2, .head_dim = 320, .num_pages = 16};
  return {
      {.name = "head_512", .kv = head_512, .scale = 0.0625F},
      {.name = "head_512_exact", .kv = head_512, .num_heads = 2, .scale = 0.125F, .precision = Precision::kF32},
      {.name = "head_512_fp8_window", .kv = fp8_512, .num_heads = 3, .scale = 0.0625F, .window = 150},
      {.name = "head_512_cap_sinks", .kv = head_512, .num_heads = 2, .scale = 0.0625F, .soft_cap = 3.0F, .sinks = true},
      {.name = "head_320", .kv = head_320, .num_heads = 2, .scale = 0.0625F, .window = 20},
      {.name = "head_128", .kv = head_128, .num_heads = 8, .scale = 0.125F},
      {.name = "head_128_window", .kv = head_128, .num_heads = 6, .scale = 0.125F, .window = 150, .sinks = true},
      {.name = "wide_cap", .kv = wide, .num_heads = 3, .scale = 0.1F, .soft_cap = 9.0F, .window = 700},
      {.name = "head_128_exact", .kv = head_128, .num_heads = 8, .scale = 0.125F, .precision = Precision::kF32},
      {.name = "grouped_exact", .kv = plain, .magnitude = 4.0F, .precision = Precision::kF32},
      {.name = "head_128_fp8_sinks", .kv = fp8_128, .scale = 0.1F, .sinks = true},
      {.name = "grouped", .kv = plain},
      {.name = "odd_f32", .kv = odd, .num_heads = 3},
      {.name = "fp8", .kv = fp8},
      {.name = "large_pages", .kv = large_pages, .num_heads = 9},
      {.name = "window", .kv = plain, .window = 20},
      {.name = "window_of_one", .kv = plain, .window = 1},
      {.name = "soft_cap", .kv = plain, .soft_cap = 3.0F, .magnitude = 4.0F},
      {.name = "sinks", .kv = plain, .sinks = true},
      {.name = "sinks_window_cap", .kv = large_pages, .num_heads = 3, .soft_cap = 5.0F, .window = 7, .sinks = true},
      {.name = "sharp", .kv = plain, .magnitude = 40.0F},
      {.name = "wide", .kv = wide, .num_heads = 14},
      {.name = "wide_fp8_window", .kv = wide_fp8, .num_heads = 4, .window = 300},
  };
}

using Parameter = std::tuple<BackendCase, int>;

class AttentionConformance : public BackendTest<Parameter> {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    test_ = cases()[static_cast<std::size_t>(std::get<1>(GetParam()))];
    backend_ = make_backend(std::get<0>(GetParam()), test_.precision);
    ASSERT_NE(backend_, nullptr);
    cache_ = std::make_unique<PagedKv>(*backend_, test_.kv);
    sinks_ = {0.5F, -3.0F, 4.0F, 1.0F, 0.0F, 2.0F, -1.0F, 7.0F, 0.1F};
    sinks_.resize(static_cast<std::size_t>(test_.num_heads));
  }

  /// Attention of tokens [past, past + q rows) of each sequence, one slice a sequence.
  std::vector<float> attend(std::span<const TestSequence* const> sequences, std::span<const std::int32_t> past,
                            std::span<const std::int32_t> counts) {
    const std::int64_t cols = std::int64_t{test_.num_heads} * test_.kv.head_dim;
    std::vector<float> q;
    std::vector<SequenceSlice> slices;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      slices.push_back({.first_row = static_cast<std::int32_t>(q.size() / static_cast<std::size_t>(cols)),
                        .num_tokens = counts[i],
                        .past = past[i],
                        .pages = sequences[i]->pages,
                        .state_slot = 0});
      const auto begin = sequences[i]->q.begin() + past[i] * cols;
      q.insert(q.end(), begin, begin + counts[i] * cols);
    }
    const auto rows = static_cast<std::int64_t>(q.size()) / cols;
    const TestMatrix q_matrix(*backend_, rows, cols, q);
    const TestMatrix y(*backend_, rows, cols);
    const TestVector sinks(*backend_, sinks_);
    AttentionArgs args;
    args.q = q_matrix.view();
    args.num_heads = test_.num_heads;
    args.scale = test_.scale;
    args.soft_cap = test_.soft_cap;
    args.window = test_.window;
    if (test_.sinks) args.sinks = sinks.span();
    args.slices = slices;
    args.kv = cache_->layer();
    args.y = y.view();
    VN_EXPECT_OK(backend_->attention(args));
    return y.read();
  }

  std::vector<float> attend_in_chunks(int threads, std::span<const std::int32_t> cuts);
  void expect_rows(const std::vector<float>& found, std::int64_t first_row,
                   const std::vector<std::int64_t>& rows) const;

  AttentionCase test_{};
  TestSequence sequence_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PagedKv> cache_;
  std::vector<float> sinks_;
};

TEST_P(AttentionConformance, MatchesDoublePrecision) {
  const TestSequence first = make_sequence(*backend_, *cache_, test_, 70, 1);
  const TestSequence second = make_sequence(*backend_, *cache_, test_, 9, 2);
  const CachedNumbers cached = {cache_->read_keys(), cache_->read_values()};
  // A prefill chunk and a single token side by side.
  const TestSequence* const sequences[] = {&first, &second};
  const std::int32_t past[] = {0, 8};
  const std::int32_t counts[] = {70, 1};
  const std::vector<float> y = attend(sequences, past, counts);
  const std::int64_t dim = test_.kv.head_dim;
  std::vector<double> expected(static_cast<std::size_t>(dim));
  std::vector<double> magnitude(expected.size());
  // Scores of size s in fp32 are off by s 2^-24 times a few; exp makes that a relative error of the weights.
  const double tolerance = test_.magnitude > 10.0F ? 1e-4 : 1e-5;
  for (std::int64_t row = 0; row < 71; ++row) {
    const bool is_first = row < 70;
    for (std::int64_t head = 0; head < test_.num_heads; ++head) {
      naive_attention(test_, is_first ? first : second, cached, sinks_, is_first ? row : 8, head, expected.data(),
                      magnitude.data());
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto i = static_cast<std::size_t>(d);
        ASSERT_NEAR(y[static_cast<std::size_t>((row * test_.num_heads + head) * dim + d)], expected[i],
                    tolerance * magnitude[i])
            << "row " << row << ", head " << head << ", dim " << d;
      }
    }
  }
}

TEST_P(AttentionConformance, ChunksAndCompanyChangeNothing) {
  const TestSequence sequence = make_sequence(*backend_, *cache_, test_, 70, 1);
  const TestSequence other = make_sequence(*backend_, *cache_, test_, 9, 2);
  const TestSequence* const alone[] = {&sequence};
  const std::int32_t all[] = {70};
  const std::int32_t zero[] = {0};
  const std::vector<float> whole = attend(alone, zero, all);
  std::vector<float> pieces;
  std::int32_t past = 0;
  for (const std::int32_t count : {1, 33, 5, 31}) {
    const TestSequence* const both[] = {&other, &sequence};
    const std::int32_t pasts[] = {3, past};
    const std::int32_t counts[] = {2, count};
    const std::vector<float> y = attend(both, pasts, counts);
    const auto skip = static_cast<std::ptrdiff_t>(2 * test_.num_heads * test_.kv.head_dim);
    pieces.insert(pieces.end(), y.begin() + skip, y.end());
    past += count;
  }
  EXPECT_EQ(whole, pieces);
}

/// What a backend with `threads` threads makes of rows cuts.front() and on of a sequence that is as long as the last
/// cut says, in one chunk from each cut to the next.
std::vector<float> AttentionConformance::attend_in_chunks(int threads, std::span<const std::int32_t> cuts) {
  backend_ = make_backend(std::get<0>(GetParam()), test_.precision, threads);
  cache_ = std::make_unique<PagedKv>(*backend_, test_.kv);
  sequence_ = make_sequence(*backend_, *cache_, test_, cuts.back(), 1);
  const TestSequence* const alone[] = {&sequence_};
  std::vector<float> result;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int32_t pasts[] = {cuts[i]};
    const std::int32_t counts[] = {cuts[i + 1] - cuts[i]};
    const std::vector<float> y = attend(alone, pasts, counts);
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

/// Some rows of attend_in_chunks(), the last one called, in double precision. `found` begins with `first_row`.
void AttentionConformance::expect_rows(const std::vector<float>& found, std::int64_t first_row,
                                       const std::vector<std::int64_t>& rows) const {
  const CachedNumbers cached = {cache_->read_keys(), cache_->read_values()};
  const std::int64_t dim = test_.kv.head_dim;
  std::vector<double> expected(static_cast<std::size_t>(dim));
  std::vector<double> magnitude(expected.size());
  const double tolerance = test_.magnitude > 10.0F ? 1e-4 : 1e-5;
  for (const std::int64_t row : rows) {
    for (std::int64_t head = 0; head < test_.num_heads; ++head) {
      naive_attention(test_, sequence_, cached, sinks_, row, head, expected.data(), magnitude.data());
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto i = static_cast<std::size_t>(d);
        ASSERT_NEAR(found[static_cast<std::size_t>(((row - first_row) * test_.num_heads + head) * dim + d)],
                    expected[i], tolerance * magnitude[i])
            << "row " << row << ", head " << head << ", dim " << d;
      }
    }
  }
}

/// Under sanitizers only the rows around position 256, where a second split begins.
TEST_P(AttentionConformance, LongSequencesInAnyPiecesOnAnyThreads) {
  test_.kv.num_pages = 128;
  using Cuts = std::vector<std::int32_t>;
  const Cuts at_once = kSanitized ? Cuts{226, 266} : Cuts{0, 330};
  const std::vector<float> whole = attend_in_chunks(1, at_once);
  const auto checked =
      kSanitized ? std::vector<std::int64_t>{255, 256, 265} : std::vector<std::int64_t>{63, 64, 255, 256, 329};
  expect_rows(whole, at_once.front(), checked);
  const Cuts one_row_long = kSanitized ? Cuts{226, 257, 258, 264, 265, 266} : Cuts{0, 257, 258, 328, 329, 330};
  const Cuts over_a_split = kSanitized ? Cuts{226, 227, 260, 266} : Cuts{0, 64, 65, 320, 330};
  for (const Cuts& cuts : {one_row_long, over_a_split}) EXPECT_EQ(attend_in_chunks(3, cuts), whole);
}

/// Many tokens, some and single ones go different ways, and so do sums over few keys and over many.
TEST_P(AttentionConformance, DeepSequencesInAnyPieces) {
  if (!std::get<0>(GetParam()).name().starts_with("cuda"))
    GTEST_SKIP() << "one kernel for all lengths, and a slow test";
  constexpr std::int32_t kAtOnce[] = {0, 2600};
  constexpr std::int32_t kCuts[] = {0, 2200, 2201, 2590, 2598, 2599, 2600};
  test_.kv.num_pages = 1024;
  const std::vector<float> whole = attend_in_chunks(2, kAtOnce);
  expect_rows(whole, 0, {1023, 2047, 2599});
  EXPECT_EQ(attend_in_chunks(2, kCuts), whole);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionConformance,
                         testing::Combine(testing::ValuesIn(all_backends()),
                                          testing::Range(0, static_cast<int>(cases().size()))),
                         [](const auto& parameter) {
                           return std::get<0>(parameter.param).name() + "_" +
                                  cases()[static_cast<std::size_t>(std::get<1>(parameter.param))].name;
                         });

}  // namespace
}  // namespace vernier::test
