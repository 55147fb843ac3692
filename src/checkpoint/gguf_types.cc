#include "checkpoint/gguf_types.h"

#include <algorithm>
#include <array>

#include "format/format_list.h"

namespace vernier {
namespace {

// Types that ggml has and Vernier's list of formats doesn't: plain arrays of other element types, and block formats
// that are known by name and size alone.
constexpr std::array kOtherTypes = {
    GgmlType{9, "q8_1", 32, 36, {}},        GgmlType{15, "q8_k", 256, 292, {}},
    GgmlType{16, "iq2_xxs", 256, 66, {}},   GgmlType{17, "iq2_xs", 256, 74, {}},
    GgmlType{18, "iq3_xxs", 256, 98, {}},   GgmlType{19, "iq1_s", 256, 50, {}},
    GgmlType{21, "iq3_s", 256, 110, {}},    GgmlType{22, "iq2_s", 256, 82, {}},
    GgmlType{24, "i8", 1, 1, DType::kI8},   GgmlType{25, "i16", 1, 2, DType::kI16},
    GgmlType{26, "i32", 1, 4, DType::kI32}, GgmlType{27, "i64", 1, 8, DType::kI64},
    GgmlType{28, "f64", 1, 8, DType::kF64}, GgmlType{29, "iq1_m", 256, 56, {}},
    GgmlType{34, "tq1_0", 256, 54, {}},     GgmlType{35, "tq2_0", 256, 66, {}},
    GgmlType{41, "q1_0", 128, 18, {}},      GgmlType{42, "q2_0", 64, 18, {}},
};

struct RemovedType {
  std::uint32_t id;
  std::string_view name;
};

// Ids that ggml once gave out and took back. Files that use them exist: some early gpt-oss files carry id 4.
constexpr std::array kRemovedTypes = {
    RemovedType{4, "q4_2"},        RemovedType{5, "q4_3"},        RemovedType{31, "q4_0_4_4"},
    RemovedType{32, "q4_0_4_8"},   RemovedType{33, "q4_0_8_8"},   RemovedType{36, "iq4_nl_4_4"},
    RemovedType{37, "iq4_nl_4_8"}, RemovedType{38, "iq4_nl_8_8"},
};

constexpr bool in_gguf(const FormatInfo& info) { return info.gguf_type != kNoGgufType; }

constexpr auto kNumFormatTypes = static_cast<std::size_t>(std::count_if(kFormats.begin(), kFormats.end(), in_gguf));

constexpr auto make_types() {
  std::array<GgmlType, kNumFormatTypes + kOtherTypes.size()> types{};
  std::size_t at = 0;
  for (const FormatInfo& info : kFormats) {
    if (!in_gguf(info)) continue;
    types[at++] = {static_cast<std::uint32_t>(info.gguf_type), info.name, static_cast<std::uint32_t>(info.block_values),
                   static_cast<std::uint32_t>(info.block_bytes),
                   info.has_plain ? std::optional(info.code_dtype) : std::nullopt};
  }
  for (const GgmlType& type : kOtherTypes) types[at++] = type;
  std::sort(types.begin(), types.end(), [](const GgmlType& a, const GgmlType& b) { return a.id < b.id; });
  return types;
}

constexpr auto kTypes = make_types();

}  // namespace

std::span<const GgmlType> ggml_types() { return kTypes; }

Result<const GgmlType*> find_ggml_type(std::uint32_t id) {
  const auto type = std::lower_bound(kTypes.begin(), kTypes.end(), id,
                                     [](const GgmlType& t, std::uint32_t wanted) { return t.id < wanted; });
  if (type != kTypes.end() && type->id == id) return &*type;
  for (const RemovedType& removed : kRemovedTypes) {
    if (removed.id != id) continue;
    return fail_with_hint(ErrorCode::kCorrupt, "get or make the file anew with a current converter",
                          "type id {} unknown or removed: ggml no longer has {}", id, removed.name);
  }
  return fail(ErrorCode::kCorrupt, "type id {} unknown or removed (known: 0 to {})", static_cast<std::int32_t>(id),
              kTypes.back().id);
}

}  // namespace vernier
