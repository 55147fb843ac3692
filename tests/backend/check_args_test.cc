// Arguments that don't fit each other are refused before anything is read or written.
#include "backend/check_args.h"

#include <gtest/gtest.h>

#include "format/format_list.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

class CheckArgs : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    backend_ = make_backend(GetParam(), Precision::kF32);
    ASSERT_NE(backend_, nullptr);
    weight_ = random_weight({.format = find_plain_format(DType::kBF16).value(), .rows = 8, .cols = 16});
  }
  MatrixView matrix(std::int64_t rows, std::int64_t cols) { return {floats_.data(), rows, cols, cols}; }

  std::unique_ptr<Backend> backend_;
  Weight weight_;
  std::vector<float> floats_ = std::vector<float>(4096);
};

TEST_P(CheckArgs, Embed) {
  const std::int32_t tokens[] = {0, 8};
  const auto status = backend_->embed({.tokens = tokens, .table = &weight_, .x = matrix(2, 16)});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "token id 8 is outside the vocabulary of 8");
  const std::int32_t negative[] = {-1};
  EXPECT_FALSE(backend_->embed({.tokens = negative, .table = &weight_, .x = matrix(1, 16)}));
  EXPECT_FALSE(backend_->embed({.tokens = {tokens, 1}, .table = &weight_, .x = matrix(1, 15)}));
}

TEST_P(CheckArgs, Linear) {
  LinearOutput output = {.weight = &weight_, .bias = {}, .y = matrix(2, 8), .accumulate = false};
  EXPECT_TRUE(backend_->linear({matrix(2, 16), {&output, 1}}));
  EXPECT_FALSE(backend_->linear({matrix(2, 15), {&output, 1}}));
  EXPECT_FALSE(backend_->linear({matrix(3, 16), {&output, 1}}));
  output.bias = {floats_.data(), 7};
  EXPECT_FALSE(backend_->linear({matrix(2, 16), {&output, 1}}));
  output.bias = {};
  weight_.outer.values = {1.0F, 1.0F};
  EXPECT_FALSE(backend_->linear({matrix(2, 16), {&output, 1}}));
}

TEST_P(CheckArgs, AttentionWantsPages) {
  const std::int32_t pages[] = {0};
  SequenceSlice slice = {.first_row = 0, .num_tokens = 2, .past = 2, .pages = pages, .state_slot = 0};
  AttentionArgs args;
  args.q = args.y = matrix(2, 16);
  args.num_heads = 2;
  args.slices = {&slice, 1};
  args.kv = {.keys = floats_.data(),
             .values = floats_.data(),
             .dtype = DType::kF32,
             .page_size = 4,
             .num_kv_heads = 1,
             .head_dim = 8};
  EXPECT_TRUE(backend_->attention(args));
  slice.past = 3;  // a fifth position
  EXPECT_FALSE(backend_->attention(args));
  slice.past = 0;
  slice.first_row = 1;  // a third row
  EXPECT_FALSE(backend_->attention(args));
  slice.first_row = 0;
  args.num_heads = 3;
  EXPECT_FALSE(backend_->attention(args));
}

TEST_P(CheckArgs, RotationWiderThanAHead) {
  RopeTable rope;
  rope.inverse_frequencies.resize(5, 1.0);
  RopeStoreArgs args;
  args.q = matrix(1, 8);
  args.num_heads = 1;
  args.head_dim = 8;
  args.rope = &rope;
  args.kv = {.keys = floats_.data(),
             .values = floats_.data(),
             .dtype = DType::kF32,
             .page_size = 4,
             .num_kv_heads = 1,
             .head_dim = 8};
  EXPECT_FALSE(backend_->rope_and_store_kv(args));
  rope.inverse_frequencies.resize(4);
  EXPECT_TRUE(backend_->rope_and_store_kv(args));
  rope.pair_offset = 3;  // pairs would overlap
  EXPECT_FALSE(backend_->rope_and_store_kv(args));
}

INSTANTIATE_TEST_SUITE_P(All, CheckArgs, testing::Values(BackendCase{"reference", ""}, BackendCase{"cpu", ""}),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
