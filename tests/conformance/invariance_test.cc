// A row's result depends neither on the rows beside it nor on the number of threads: equal to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "backend/cpu/cpu_isa.h"
#include "support/backends.h"
#include "support/random_weight.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

class InvarianceConformance : public BackendTest<> {};

std::vector<float> multiply(Backend& backend, const std::vector<const Weight*>& weights, const std::vector<float>& x,
                            std::int64_t tokens) {
  std::vector<TestMatrix> results;
  std::vector<LinearOutput> outputs;
  results.reserve(weights.size());
  for (const Weight* weight : weights) {
    results.emplace_back(backend, tokens, weight->rows);
    outputs.push_back({.weight = weight, .bias = {}, .y = results.back().view(), .accumulate = false});
  }
  const TestMatrix x_matrix(backend, tokens, weights[0]->cols, x);
  VN_EXPECT_OK(backend.linear({x_matrix.view(), outputs}));
  std::vector<float> y;  // token by token
  std::vector<std::vector<float>> columns;
  columns.reserve(results.size());
  for (const TestMatrix& result : results) columns.push_back(result.read());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto row = columns[i].begin() + t * weights[i]->rows;
      y.insert(y.end(), row, row + weights[i]->rows);
    }
  }
  return y;
}

TEST_P(InvarianceConformance, LinearOfBatchesAndThreads) {
  constexpr std::int64_t kTokens = 19;
  for (const FormatCase& format : all_format_cases()) {
    const std::int64_t cols =
        format.cols_multiple == 1 ? 333 : format.cols_multiple * (format.cols_multiple > 64 ? 2 : 5);
    Random random(3);
    const std::vector<float> x = random.floats(kTokens * cols);
    std::vector<float> reference;
    for (int threads = 1; threads <= repetitions(3, 1); ++threads) {
      const auto backend = make_backend(GetParam(), Precision::kBf16, threads);
      ASSERT_NE(backend, nullptr);
      WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = 67, .cols = cols};
      const Weight first = backend->place(random_weight(spec)).value();
      spec.rows = 21;
      spec.seed = 2;
      const Weight second = backend->place(random_weight(spec)).value();
      const std::vector<float> together = multiply(*backend, {&first, &second}, x, kTokens);
      if (reference.empty()) reference = together;
      ASSERT_EQ(together, reference) << format.name << " with " << threads << " threads";
      std::vector<float> apart;
      for (std::int64_t begin = 0; begin < kTokens;) {
        const std::int64_t count = std::min<std::int64_t>(kTokens - begin, begin == 0 ? 1 : begin == 1 ? 3 : 7);
        const std::vector<float> rows(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
        const std::vector<float> y = multiply(*backend, {&first, &second}, rows, count);
        apart.insert(apart.end(), y.begin(), y.end());
        begin += count;
      }
      ASSERT_EQ(apart, together) << format.name;
    }
  }
}

TEST_P(InvarianceConformance, LargeBatches) {
  constexpr std::int64_t kTokens = 140;
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    for (const FormatCase& format : formats_for_many_tokens()) {
      const std::int64_t cols = format.cols_multiple > 64 ? 1024 : 1100 / format.cols_multiple * format.cols_multiple;
      Random random(6);
      const std::vector<float> x = random.floats(kTokens * cols);
      const Weight weight =
          backend->place(random_weight({.format = format.format, .layout = format.layout, .rows = 139, .cols = cols}))
              .value();
      const std::vector<float> together = multiply(*backend, {&weight}, x, kTokens);
      for (const auto& [begin, count] : {std::pair{0, 1}, std::pair{100, 7}, std::pair{37, 101}}) {
        const std::vector<float> rows(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
        const std::vector<float> apart = multiply(*backend, {&weight}, rows, count);
        const auto first = together.begin() + begin * weight.rows;
        ASSERT_TRUE(std::equal(apart.begin(), apart.end(), first)) << format.name << ", " << count << " tokens";
      }
    }
  }
}

/// Kernels for few tokens take long rows in other ways than short ones.
TEST_P(InvarianceConformance, FewTokensOfLongRows) {
  constexpr std::int64_t kTokens = 40;
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    for (const FormatCase& format : formats_for_many_tokens()) {
      if (format.cols_multiple > 64) continue;
      for (std::int64_t cols : {1344, 8256}) {
        if (format.cols_multiple == 1) cols -= 3;
        cols = cols / format.cols_multiple * format.cols_multiple;
        const std::vector<float> x = Random(9).floats(kTokens * cols);
        WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = 35, .cols = cols};
        const Weight first = backend->place(random_weight(spec)).value();
        spec.rows = 21;
        spec.seed = 2;
        const Weight second = backend->place(random_weight(spec)).value();
        const std::vector<float> together = multiply(*backend, {&first, &second}, x, kTokens);
        for (const auto& [begin, count] : {std::pair{0, 1}, std::pair{39, 1}, std::pair{5, 2}, std::pair{7, 5},
                                           std::pair{11, 8}, std::pair{3, 11}, std::pair{24, 16}}) {
          const std::vector<float> rows(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
          const std::vector<float> apart = multiply(*backend, {&first, &second}, rows, count);
          const auto expected = together.begin() + begin * (first.rows + second.rows);
          ASSERT_TRUE(std::equal(apart.begin(), apart.end(), expected))
              << format.name << ", " << cols << " columns, " << count << " tokens";
        }
      }
    }
  }
}

/// Rows of many sizes: ordinary ones, subnormals, and such as come near the ends of the range.
std::vector<float> rows_of_all_sizes(std::int64_t tokens, std::int64_t cols) {
  Random random(8);
  std::vector<float> x = random.floats(tokens * cols);
  constexpr float kSizes[] = {1.0F, 0x1p-130F, 0x1p-60F, 0x1p-40F, 0x1p60F, 1.0F, 1.0F};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] *= kSizes[i / static_cast<std::size_t>(cols) % std::size(kSizes)];
    if (i % 97 == 5) x[i] = 0.0F;
  }
  return x;
}

void expect_same_bits(const std::vector<float>& actual, const float* expected, const std::string& what) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected[i])) << what << ", " << i;
  }
}

TEST_P(InvarianceConformance, RowsOfLargeBatches) {
  constexpr std::int64_t kTokens = 300;
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision, 2);
    ASSERT_NE(backend, nullptr);
    if (backend->name() != "cpu" && backend->name() != "reference") GTEST_SKIP() << "promises less";
    for (const FormatCase& format : all_format_cases()) {
      const std::int64_t cols =
          format.cols_multiple == 1 ? 555 : (format.cols_multiple > 64 ? 3 : 19) * format.cols_multiple;
      const std::vector<float> x = rows_of_all_sizes(kTokens, cols);
      const Weight host = random_weight({.format = format.format, .layout = format.layout, .rows = 13, .cols = cols});
      // A few codes of the smallest magnitudes.
      if (format.layout == WeightLayout::kPlain) {
        for (std::int64_t i = 0; i < host.row_stride; i += 2)
          mutable_codes(host)[3 * host.row_stride + i] = std::byte{1};
        std::memset(mutable_codes(host) + 3 * host.row_stride, 0, static_cast<std::size_t>(host.row_stride / 2));
      }
      const Weight weight = backend->place(host).value();
      const std::vector<float> together = multiply(*backend, {&weight}, x, kTokens);
      for (const std::int64_t count : {1, 2, 3, 8, 64}) {
        for (const std::int64_t begin : {0, 1, 2, 3, 4, 5, 129, 236}) {
          const std::vector<float> rows(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
          expect_same_bits(multiply(*backend, {&weight}, rows, count), together.data() + begin * weight.rows,
                           format.name + " from " + std::to_string(begin));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Pairs of bf16 are an optimisation that changes nothing.
TEST(PairProducts, GiveWhatSingleOnesGive) {
  for (const std::string_view needed : {"avx512", "avx512bf16"}) {
    if (!choose_kernels(needed)) GTEST_SKIP() << "needs " << needed;
  }
  const auto singles = make_backend({"cpu", "avx512"}, Precision::kBf16);
  const auto pairs = make_backend({"cpu", "avx512bf16"}, Precision::kBf16);
  for (const FormatCase& format : all_format_cases()) {
    const std::int64_t cols =
        format.cols_multiple == 1 ? 1111 : (format.cols_multiple > 64 ? 5 : 35) * format.cols_multiple;
    const Weight weight = random_weight({.format = format.format, .layout = format.layout, .rows = 29, .cols = cols});
    const std::vector<float> x = rows_of_all_sizes(23, cols);
    Random random(9);
    for (const std::vector<float>& inputs : {x, random.floats(23 * cols)}) {
      expect_same_bits(multiply(*pairs, {&weight}, inputs, 23), multiply(*singles, {&weight}, inputs, 23).data(),
                       format.name);
      if (HasFatalFailure()) return;
    }
  }
}

/// So many rows that columns are cut over eight, four, two blocks and one.
TEST_P(InvarianceConformance, LinearsOfManyRows) {
  constexpr std::int64_t kTokens = 150;
  const auto backend = make_backend(GetParam(), Precision::kBf16, 2);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "cuts rows by its own rules";
  for (const FormatCase& format : formats_for_many_tokens()) {
    if (format.cols_multiple > 64) continue;  // others' kernels cut nothing
    for (const auto& [rows, cols] :
         {std::pair{4000, 1152}, std::pair{7000, 640}, std::pair{16000, 832}, std::pair{18000, 320}}) {
      const std::vector<float> x = Random(7).floats(kTokens * cols);
      const Weight weight =
          backend->place(random_weight({.format = format.format, .layout = format.layout, .rows = rows, .cols = cols}))
              .value();
      const std::vector<float> together = multiply(*backend, {&weight}, x, kTokens);
      for (const auto& [begin, count] : {std::pair{3, 1}, std::pair{100, 17}, std::pair{40, 60}}) {
        const std::vector<float> part(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
        expect_same_bits(multiply(*backend, {&weight}, part, count), together.data() + begin * weight.rows,
                         format.name + ", " + std::to_string(count) + " tokens, " + std::to_string(rows) + " rows");
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// So many rows and tokens that the tiles of a product are as large as they get.
TEST_P(InvarianceConformance, LinearsOfLargeTiles) {
  const auto backend = make_backend(GetParam(), Precision::kBf16, 2);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "cuts rows by its own rules";
  for (const FormatCase& format : all_format_cases()) {
    if (format.cols_multiple > 64) continue;
    for (const auto& [tokens, rows, cols] : {std::tuple{250, 8300, 832}, std::tuple{1000, 8190, 320}}) {
      const std::vector<float> x = Random(7).floats(std::int64_t{tokens} * cols);
      const Weight weight =
          backend->place(random_weight({.format = format.format, .layout = format.layout, .rows = rows, .cols = cols}))
              .value();
      const std::vector<float> together = multiply(*backend, {&weight}, x, tokens);
      for (const auto& [begin, count] : {std::pair{0, 40}, std::pair{120, 20}, std::pair{tokens - 3, 3}}) {
        const std::vector<float> part(x.begin() + begin * cols, x.begin() + (begin + count) * cols);
        expect_same_bits(multiply(*backend, {&weight}, part, count), together.data() + begin * weight.rows,
                         format.name + ", " + std::to_string(begin) + " of " + std::to_string(tokens) + " tokens");
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Tokens and their routing; every second choice is expert 3 or 2.
struct ExpertTokens {
  static constexpr std::int64_t kTopK = 2;
  std::int64_t dim;
  std::vector<float> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  ExpertTokens(std::int64_t tokens, std::int64_t cols) : dim(cols) {
    Random random(4);
    x = random.floats(tokens * dim);
    for (std::int32_t t = 0; t < tokens; ++t) {
      ids.push_back(t % 3);
      ids.push_back(3 - t % 2);
    }
    ids[1] = 1;
    weights = random.floats(tokens * kTopK);
  }

  [[nodiscard]] std::vector<float> run(Backend& backend, const ExpertWeights& experts, std::int64_t begin,
                                       std::int64_t count) const {
    const std::vector<float> rows(x.begin() + begin * dim, x.begin() + (begin + count) * dim);
    const TestMatrix x_matrix(backend, count, dim, rows);
    const TestMatrix y(backend, count, dim, rows);
    const TestVector routing(backend, {weights.begin() + begin * kTopK, weights.begin() + (begin + count) * kTopK});
    const auto size = static_cast<std::size_t>(count * kTopK) * 4;
    const Buffer id_buffer = backend.allocate(size).value();
    VN_EXPECT_OK(backend.copy_to_device(id_buffer.data(), ids.data() + begin * kTopK, size));
    ExpertMlpArgs args;
    args.x = x_matrix.view();
    args.experts = &experts;
    args.top_k = kTopK;
    args.ids = static_cast<const std::int32_t*>(id_buffer.data());
    args.weights = routing.span().data();
    args.y = y.view();
    VN_EXPECT_OK(backend.expert_mlp(args));
    return y.read();
  }
};

ExpertWeights four_experts(Backend& backend, const FormatCase& format, std::int64_t dim, std::int64_t ff) {
  ExpertWeights experts;
  for (std::uint64_t e = 0; e < 4; ++e) {
    for (auto* list : {&experts.gate, &experts.up, &experts.down}) {
      const bool is_down = list == &experts.down;
      WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = dim, .cols = ff};
      if (!is_down) std::swap(spec.rows, spec.cols);
      spec.seed = e * 3 + static_cast<std::uint64_t>(list == &experts.up) + 10;
      list->push_back(backend.place(random_weight(spec)).value());
    }
  }
  return experts;
}

TEST_P(InvarianceConformance, ExpertsOfManyTokens) {
  constexpr std::int64_t kTokens = 290;
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision, 2);
    ASSERT_NE(backend, nullptr);
    for (const FormatCase& format : all_format_cases()) {
      if (format.cols_multiple > 64) continue;  // nothing new, and slow
      if (is_brief(format) && precision == Precision::kBf16) continue;
      const std::int64_t dim = format.cols_multiple == 1 ? 205 : 3 * format.cols_multiple;
      const std::int64_t ff = format.cols_multiple == 1 ? 141 : 2 * format.cols_multiple;
      const ExpertWeights experts = four_experts(*backend, format, dim, ff);
      const ExpertTokens tokens(kTokens, dim);
      const std::vector<float> together = tokens.run(*backend, experts, 0, kTokens);
      if (is_brief(format)) continue;
      for (const auto& [begin, count] : {std::pair{0, 1}, std::pair{31, 9}, std::pair{200, 40}}) {
        expect_same_bits(tokens.run(*backend, experts, begin, count), together.data() + begin * dim,
                         format.name + " from " + std::to_string(begin));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Rows and columns that end amid a chunk of columns, a pair of tiles and a segment; groups of up to 8, 16 and more.
TEST_P(InvarianceConformance, ExpertsOfLongRows) {
  constexpr std::int64_t kTokens = 60;
  const auto backend = make_backend(GetParam(), Precision::kBf16, 2);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "cuts rows by its own rules";
  for (const FormatCase& format : formats_for_many_tokens()) {
    if (format.name.find("fp4") == std::string::npos) continue;  // others have one way for any number of columns
    for (const auto& [dim, ff] : {std::pair{1600, 2432}, std::pair{2048, 768}, std::pair{192, 576}}) {
      if (is_under_racecheck() && dim == 1600) continue;
      const ExpertWeights experts = four_experts(*backend, format, dim, ff);
      const ExpertTokens tokens(kTokens, dim);
      const std::vector<float> together = tokens.run(*backend, experts, 0, kTokens);
      for (const auto& [begin, count] :
           {std::pair{0, 1}, std::pair{1, 2}, std::pair{5, 9}, std::pair{8, 22}, std::pair{2, 31}}) {
        expect_same_bits(tokens.run(*backend, experts, begin, count), together.data() + begin * dim,
                         format.name + ", " + std::to_string(count) + " tokens, " + std::to_string(dim));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// A lone token's experts have kernels of their own on some devices: rows of more chunks than their rings hold, and
/// more row tiles than there are multiprocessors. One choice is computed elsewhere.
TEST_P(InvarianceConformance, ExpertsOfALoneToken) {
  constexpr std::int64_t kTokens = 4;
  constexpr std::int64_t kDim = 2304;
  constexpr std::int64_t kFf = 2880;
  const auto backend = make_backend(GetParam(), Precision::kBf16, 2);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "cuts rows by its own rules";
  for (const FormatCase& format : formats_for_many_tokens()) {
    if (format.name.find("fp") == std::string::npos) continue;
    const ExpertWeights experts = four_experts(*backend, format, kDim, kFf);
    ExpertTokens tokens(kTokens, kDim);
    tokens.ids[3] = -1;
    const std::vector<float> together = tokens.run(*backend, experts, 0, kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      expect_same_bits(tokens.run(*backend, experts, t, 1), together.data() + t * kDim,
                       format.name + ", token " + std::to_string(t));
      if (HasFatalFailure()) return;
    }
  }
}

/// ggml's formats, whose experts have kernels of their own for many tokens.
TEST_P(InvarianceConformance, ExpertsOfGroups) {
  constexpr std::int64_t kTokens = 150;
  const auto backend = make_backend(GetParam(), Precision::kBf16, 2);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "has one way for any number of tokens";
  for (const FormatCase& format : all_format_cases()) {
    if (format.layout != WeightLayout::kInterleaved || format.name.find("fp4") != std::string::npos) continue;
    for (const auto& [dim, ff] : {std::pair{768, 1280}, std::pair{512, 256}}) {
      if (is_under_racecheck() && dim > 512) continue;
      const ExpertWeights experts = four_experts(*backend, format, dim, ff);
      const ExpertTokens tokens(kTokens, dim);
      const std::vector<float> together = tokens.run(*backend, experts, 0, kTokens);
      for (const auto& [begin, count] : {std::pair{0, 1}, std::pair{5, 9}, std::pair{20, 60}}) {
        expect_same_bits(tokens.run(*backend, experts, begin, count), together.data() + begin * dim,
                         format.name + ", " + std::to_string(count) + " tokens, " + std::to_string(dim));
        if (HasFatalFailure()) return;
      }
    }
  }
}

class ExpertInvariance : public BackendTest<std::tuple<BackendCase, int>> {};

TEST_P(ExpertInvariance, ExpertsOfBatchesAndThreads) {
  const auto& [which, num_tokens] = GetParam();
  const std::int64_t tokens = num_tokens;
  constexpr std::int64_t kDim = 64;
  const ExpertTokens routed(tokens, kDim);
  std::vector<float> reference;
  for (int threads = 1; threads <= repetitions(3, 1); threads += 2) {
    const auto backend = make_backend(which, Precision::kBf16, threads);
    const ExpertWeights experts = four_experts(*backend, all_format_cases()[2], kDim, kDim);
    const std::vector<float> together = routed.run(*backend, experts, 0, tokens);
    if (reference.empty()) reference = together;
    EXPECT_EQ(together, reference) << threads << " threads";
    std::vector<float> apart;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::vector<float> y = routed.run(*backend, experts, t, 1);
      apart.insert(apart.end(), y.begin(), y.end());
    }
    EXPECT_EQ(apart, together);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertInvariance,
                         testing::Combine(testing::ValuesIn(all_backends()), testing::Values(13, 150)),
                         [](const auto& parameter) {
                           return std::get<0>(parameter.param).name() + "_" +
                                  std::to_string(std::get<1>(parameter.param));
                         });
INSTANTIATE_TEST_SUITE_P(All, InvarianceConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
