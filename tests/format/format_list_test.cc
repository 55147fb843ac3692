#include "format/format_list.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace vernier {
namespace {

TEST(FormatList, EveryFormatIsFoundByNameAndType) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    const FormatInfo& info = kFormats[i];
    const auto id = static_cast<FormatId>(i);
    EXPECT_TRUE(names.emplace(info.name).second) << info.name;
    EXPECT_EQ(find_format(info.name), id);
    EXPECT_EQ(&format_info(id), &info);
    if (info.gguf_type != kNoGgufType) {
      EXPECT_EQ(find_gguf_type(info.gguf_type), id);
    }
    EXPECT_TRUE(info.has_plain || info.has_interleaved || info.has_separate) << info.name;
    const std::string_view visited = visit_format(id, []<class F>(std::type_identity<F>) { return F::kName; });
    EXPECT_EQ(visited, info.name);
  }
  const std::set<std::string> expected = {"f32",   "f16",  "bf16", "fp8-block", "fp8-row", "fp8-tensor", "nvfp4",
                                          "mxfp4", "q4_0", "q4_1", "q5_0",      "q5_1",    "q8_0",       "q2_k",
                                          "q3_k",  "q4_k", "q5_k", "q6_k",      "iq4_nl",  "iq4_xs"};
  EXPECT_EQ(names, expected);
}

TEST(FormatList, UnknownNamesAndTypesAreNothing) {
  EXPECT_FALSE(find_format("q9_9"));
  EXPECT_FALSE(find_format(""));
  for (const int type : {-1, 4, 5, 9, 15, 24, 31, 36, 41, 42, 43, 1000}) EXPECT_FALSE(find_gguf_type(type)) << type;
  EXPECT_FALSE(find_gguf_type((std::int64_t{1} << 32) + 2));
}

// Type numbers and sizes as GGUF defines them.
TEST(FormatList, GgufTypesHaveTheirSizes) {
  struct Row {
    int type;
    int values, bytes;
  };
  for (const Row& row :
       {Row{0, 1, 4}, Row{1, 1, 2}, Row{30, 1, 2}, Row{2, 32, 18}, Row{3, 32, 20}, Row{6, 32, 22}, Row{7, 32, 24},
        Row{8, 32, 34}, Row{10, 256, 84}, Row{11, 256, 110}, Row{12, 256, 144}, Row{13, 256, 176}, Row{14, 256, 210},
        Row{20, 32, 18}, Row{23, 256, 136}, Row{39, 32, 17}, Row{40, 64, 36}}) {
    const auto id = find_gguf_type(row.type);
    ASSERT_TRUE(id) << row.type;
    EXPECT_EQ(format_info(*id).block_values, row.values) << row.type;
    EXPECT_EQ(format_info(*id).block_bytes, row.bytes) << row.type;
  }
}

TEST(FormatList, PlainFormatsOfDTypes) {
  EXPECT_EQ(find_plain_format(DType::kF32), find_format("f32"));
  EXPECT_EQ(find_plain_format(DType::kF16), find_format("f16"));
  EXPECT_EQ(find_plain_format(DType::kBF16), find_format("bf16"));
  EXPECT_FALSE(find_plain_format(DType::kF8E4M3)) << "needs a scale";
  EXPECT_FALSE(find_plain_format(DType::kF8E5M2));
  EXPECT_FALSE(find_plain_format(DType::kU8));
}

TEST(FormatList, RowBytes) {
  const auto bytes = [](std::string_view name, WeightLayout layout, std::int64_t cols) {
    return format_info(find_format(name).value()).row_bytes(layout, cols);
  };
  EXPECT_EQ(bytes("nvfp4", WeightLayout::kInterleaved, 128), 72);
  EXPECT_EQ(bytes("nvfp4", WeightLayout::kSeparate, 80), 40);
  EXPECT_FALSE(bytes("nvfp4", WeightLayout::kInterleaved, 80)) << "blocks are 64 values";
  EXPECT_FALSE(bytes("nvfp4", WeightLayout::kSeparate, 72));
  EXPECT_FALSE(bytes("nvfp4", WeightLayout::kPlain, 64));
  EXPECT_EQ(bytes("mxfp4", WeightLayout::kSeparate, 2880), 1440);
  EXPECT_EQ(bytes("fp8-block", WeightLayout::kSeparate, 201), 201);
  EXPECT_EQ(bytes("fp8-row", WeightLayout::kPlain, 201), 201);
  EXPECT_EQ(bytes("f32", WeightLayout::kPlain, 3), 12);
  EXPECT_FALSE(bytes("f32", WeightLayout::kInterleaved, 3));
  for (const std::int64_t cols : {std::int64_t{0}, std::int64_t{-64}, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::max() / 256 * 256}) {
    for (const FormatInfo& info : kFormats) {
      EXPECT_FALSE(info.row_bytes(WeightLayout::kPlain, cols));
      EXPECT_FALSE(info.row_bytes(WeightLayout::kInterleaved, cols));
      EXPECT_FALSE(info.row_bytes(WeightLayout::kSeparate, cols));
    }
  }
}

// Where a kernel finds code and scale of a value, by the constants alone.
TEST(FormatList, CodePositionsCoverEachNibbleOnce) {
  const auto expect_bijective = []<class F, class Layout>(std::type_identity<F>, std::type_identity<Layout>,
                                                          int values) {
    std::set<std::pair<std::int64_t, int>> seen;
    for (int i = 0; i < values; ++i) {
      const CodePosition at = code_position<F, Layout>(i);
      EXPECT_GE(at.byte, Layout::kCodesAt);
      EXPECT_LT(at.byte, Layout::kCodesAt + values * F::Element::kBits / 8);
      EXPECT_TRUE(seen.emplace(at.byte, at.shift).second) << F::kName << " " << i;
    }
  };
  for (std::size_t id = 0; id < kFormats.size(); ++id) {
    visit_format(static_cast<FormatId>(id), [&]<class F>(std::type_identity<F> format) {
      if constexpr (HasCodes<F> && HasInterleaved<F>) {
        expect_bijective(format, std::type_identity<typename F::Interleaved>{}, F::kBlockValues);
      }
      if constexpr (HasSeparate<F>) expect_bijective(format, std::type_identity<typename F::Separate>{}, 64);
      if constexpr (HasPlain<F>) expect_bijective(format, std::type_identity<typename F::Plain>{}, 64);
    });
  }
}

}  // namespace
}  // namespace vernier
