// Backend::rope_and_store_kv against double precision: head norms, every kind of rotation, every cache type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "support/paged_kv.h"

namespace vernier::test {
namespace {

/// Width of heads, and what a matrix has behind its rows: some go by fours of numbers on a GPU.
struct RopeWidth {
  std::int32_t dim = 32;
  std::int64_t padding = 3;
};
constexpr RopeWidth kWidths[] = {{32, 3}, {128, 3}, {64, 4}, {128, 4}, {256, 4}};
constexpr std::int64_t kHeads = 5;  // odd: heads of 64 go two by two
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kTokens = 7;
constexpr std::int32_t kPast = 29;  // far enough that a page ends in the slice
constexpr float kEps = 1e-5F;

class RopeConformance : public BackendTest<> {};

std::vector<double> expected_head(std::span<const float> x, const std::vector<float>& norm, bool normalize,
                                  const RopeTable& rope, double position) {
  std::vector<double> head(x.begin(), x.end());
  if (normalize) {
    double squares = 0.0;
    for (const double value : head) squares += value * value;
    for (std::size_t d = 0; d < head.size(); ++d) {
      head[d] *= (norm.empty() ? 1.0 : norm[d]) / std::sqrt(squares / static_cast<double>(head.size()) + kEps);
    }
  }
  std::vector<double> rotated = head;
  const std::size_t pairs = rope.inverse_frequencies.size();
  for (std::size_t j = 0; j < pairs; ++j) {
    const bool halves = rope.pairing == RopePairing::kHalves;
    const std::size_t a = halves ? j : 2 * j;
    const std::size_t b =
        halves ? j + (rope.pair_offset > 0 ? static_cast<std::size_t>(rope.pair_offset) : pairs) : a + 1;
    const double angle = position * rope.inverse_frequencies[j];
    rotated[a] = rope.magnitude * (head[a] * std::cos(angle) - head[b] * std::sin(angle));
    rotated[b] = rope.magnitude * (head[b] * std::cos(angle) + head[a] * std::sin(angle));
  }
  return rotated;
}

RopeTable make_rope(std::size_t pairs, RopePairing pairing, std::int32_t offset, float magnitude) {
  RopeTable rope;
  for (std::size_t j = 0; j < pairs; ++j) {
    rope.inverse_frequencies.push_back(std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(pairs)));
  }
  rope.pairing = pairing;
  rope.pair_offset = offset;
  rope.magnitude = magnitude;
  return rope;
}

/// The relative error that a cache type adds.
double cache_error(DType type) {
  if (type == DType::kF32) return 0.0;
  return type == DType::kBF16 ? 0x1p-8 : 0x1p-4;
}

struct RopeCase {
  RopeTable rope;
  bool norms = false;
  bool normalize_v = false;
  DType dtype = DType::kF32;
  RopeWidth width = {};
};

void check_rope(Backend& backend, const RopeCase& test) {
  const std::int32_t dim = test.width.dim;
  const auto width = static_cast<std::size_t>(dim);
  const KvSpec spec = {.dtype = test.dtype, .page_size = 16, .num_kv_heads = kKvHeads, .head_dim = dim, .num_pages = 8};
  PagedKv cache(backend, spec);
  const std::vector<std::int32_t> pages = cache.take_pages(kPast + kTokens);
  Random random(5);
  const std::vector<float> q = random.floats(kTokens * kHeads * dim, 2.0F);
  const std::vector<float> k = random.floats(kTokens * kKvHeads * dim, 2.0F);
  const std::vector<float> v = random.floats(kTokens * kKvHeads * dim, 2.0F);
  const std::vector<float> q_norm = random.floats(dim);
  const std::vector<float> k_norm = random.floats(dim);
  const TestMatrix q_matrix(backend, kTokens, kHeads * dim, q, test.width.padding);
  const TestMatrix k_matrix(backend, kTokens, kKvHeads * dim, k, test.width.padding);
  const TestMatrix v_matrix(backend, kTokens, kKvHeads * dim, v, test.width.padding);
  const TestVector q_vector(backend, q_norm);
  const TestVector k_vector(backend, k_norm);
  const SequenceSlice slice = {.first_row = 0, .num_tokens = kTokens, .past = kPast, .pages = pages, .state_slot = 0};
  RopeStoreArgs args;
  args.q = q_matrix.view();
  args.k = k_matrix.view();
  args.v = v_matrix.view();
  args.num_heads = kHeads;
  args.num_kv_heads = kKvHeads;
  args.head_dim = dim;
  if (test.norms) args.q_norm = q_vector.span();
  if (test.norms) args.k_norm = k_vector.span();
  args.normalize_v = test.normalize_v;
  args.eps = kEps;
  args.rope = &test.rope;
  args.slices = {&slice, 1};
  args.kv = cache.layer();
  VN_EXPECT_OK(backend.rope_and_store_kv(args));
  const std::vector<float> q_after = q_matrix.read();
  const std::vector<double> keys = cache.read_keys();
  const std::vector<double> values = cache.read_values();
  const RopeTable none;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const double position = static_cast<double>(kPast + t);
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t at = (t * kHeads + h) * dim;
      const auto expected = expected_head({q.data() + at, width}, q_norm, test.norms, test.rope, position);
      for (std::size_t d = 0; d < width; ++d) ASSERT_NEAR(q_after[static_cast<std::size_t>(at) + d], expected[d], 2e-6);
    }
    for (std::int64_t h = 0; h < kKvHeads; ++h) {
      const std::int64_t at = (t * kKvHeads + h) * dim;
      const auto key = expected_head({k.data() + at, width}, k_norm, test.norms, test.rope, position);
      const auto value = expected_head({v.data() + at, width}, {}, test.normalize_v, none, position);
      const std::size_t cell = kv_at(spec, pages, kPast + t, h);
      for (std::size_t d = 0; d < width; ++d) {
        // The smallest steps of fp8 are 2^-10 of its scale.
        const double floor = test.dtype == DType::kF8E4M3 ? 0x1p-10 * 0.03 + 2e-6 : 2e-6;
        ASSERT_NEAR(keys[cell + d], key[d], floor + cache_error(test.dtype) * std::fabs(key[d]));
        ASSERT_NEAR(values[cell + d], value[d], floor + cache_error(test.dtype) * std::fabs(value[d]));
      }
    }
  }
  // Nothing else was written: all other cells are still NaN.
  const auto written = static_cast<std::size_t>(kTokens * kKvHeads * dim);
  EXPECT_EQ(static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), [](double x) { return !std::isnan(x); })),
            written);
}

TEST_P(RopeConformance, Rotations) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  using enum RopePairing;
  for (const RopeWidth& width : kWidths) {
    const std::int32_t dim = width.dim;
    SCOPED_TRACE(dim);
    const auto half = static_cast<std::size_t>(dim / 2);
    check_rope(*backend, {.rope = make_rope(half, kHalves, 0, 1.0F), .width = width});
    check_rope(*backend, {.rope = make_rope(half, kInterleaved, 0, 1.0F), .width = width});
    check_rope(*backend, {.rope = make_rope(half / 4, kHalves, 0, 1.3F), .width = width});        // partial, magnified
    check_rope(*backend, {.rope = make_rope(half / 4, kHalves, dim / 2, 1.0F), .width = width});  // half a head apart
    check_rope(*backend, {.rope = make_rope(half / 4, kInterleaved, 0, 1.0F), .width = width});
    check_rope(*backend, {.rope = make_rope(5, kInterleaved, 0, 1.0F), .width = width});
    check_rope(*backend, {.rope = {}, .width = width});
  }
}

TEST_P(RopeConformance, NormsAndCacheTypes) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  for (const RopeWidth& width : kWidths) {
    const std::int32_t dim = width.dim;
    SCOPED_TRACE(dim);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      const RopeTable rope = make_rope(static_cast<std::size_t>(dim / 2), RopePairing::kHalves, 0, 1.0F);
      check_rope(*backend, {.rope = rope, .norms = true, .normalize_v = false, .dtype = dtype, .width = width});
      check_rope(*backend, {.rope = rope, .norms = true, .normalize_v = true, .dtype = dtype, .width = width});
      check_rope(*backend, {.rope = rope, .norms = false, .normalize_v = true, .dtype = dtype, .width = width});
    }
  }
}

TEST_P(RopeConformance, FarPositionsKeepTheirAngle) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  const std::int64_t position = 1'000'003;
  const KvSpec spec = {.dtype = DType::kF32, .page_size = 1 << 20, .num_kv_heads = 1, .head_dim = 2, .num_pages = 1};
  PagedKv cache(*backend, spec);
  const std::vector<std::int32_t> pages = {0};
  const TestMatrix q(*backend, 1, 2, {1.0F, 0.0F});
  const SequenceSlice slice = {
      .first_row = 0, .num_tokens = 1, .past = static_cast<std::int32_t>(position), .pages = pages, .state_slot = 0};
  const RopeTable rope = make_rope(1, RopePairing::kHalves, 0, 1.0F);
  RopeStoreArgs args;
  args.q = q.view();
  args.num_heads = 1;
  args.head_dim = 2;
  args.rope = &rope;
  args.slices = {&slice, 1};
  args.kv = cache.layer();
  VN_EXPECT_OK(backend->rope_and_store_kv(args));
  const std::vector<float> y = q.read();
  EXPECT_NEAR(y[0], std::cos(static_cast<double>(position)), 1e-6);
  EXPECT_NEAR(y[1], std::sin(static_cast<double>(position)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, RopeConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
