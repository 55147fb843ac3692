// The one list of storage formats. A format's FormatId is its position here; names, sizes and dispatch follow from it.
// To add a format: write its header, include it, add it to FormatList.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "format/block_format.h"
#include "format/fp8.h"
#include "format/ggml_legacy.h"
#include "format/iq4.h"
#include "format/k_quants.h"
#include "format/mxfp4.h"
#include "format/nvfp4.h"
#include "format/plain.h"
#include "tensor/dtype.h"
#include "tensor/format_id.h"
#include "tensor/weight.h"

namespace vernier {

template <class... Formats>
struct FormatTypes {
  static constexpr std::size_t kCount = sizeof...(Formats);
};

using FormatList = FormatTypes<F32Format, F16Format, BF16Format,                            //
                               Fp8BlockFormat, Fp8RowFormat, Fp8TensorFormat,               //
                               Nvfp4Format, Mxfp4Format,                                    //
                               Q4_0Format, Q4_1Format, Q5_0Format, Q5_1Format, Q8_0Format,  //
                               Q2_KFormat, Q3_KFormat, Q4_KFormat, Q5_KFormat, Q6_KFormat,  //
                               Iq4NlFormat, Iq4XsFormat>;

namespace format_detail {

/// The DType of arrays of a codec's codes; 4-bit codes come packed in U8.
template <class Codec>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<Codec, F32Codec>) return DType::kF32;
  if constexpr (std::is_same_v<Codec, F16Codec>) return DType::kF16;
  if constexpr (std::is_same_v<Codec, BF16Codec>) return DType::kBF16;
  if constexpr (std::is_same_v<Codec, E4M3Codec> || std::is_same_v<Codec, UE4M3Codec>) return DType::kF8E4M3;
  if constexpr (std::is_same_v<Codec, E8M0Codec>) return DType::kF8E8M0;
  return DType::kU8;
}

template <class F, class... Formats>
constexpr std::size_t index_of(FormatTypes<Formats...>) {
  constexpr bool kSame[] = {std::is_same_v<F, Formats>...};
  std::size_t index = 0;
  while (!kSame[index]) ++index;
  return index;
}

}  // namespace format_detail

/// What the rest of Vernier may ask about a format.
struct FormatInfo {
  std::string_view name;  ///< as `inspect` prints it
  int gguf_type = kNoGgufType;
  std::int32_t block_values = 1;   ///< values of an interleaved block; 1 where there is no such layout
  std::int32_t block_bytes = 1;    ///< its bytes, scales included; of one element where there is no such layout
  bool has_plain = false;          ///< WeightLayout::kPlain exists
  bool has_interleaved = false;    ///< WeightLayout::kInterleaved exists
  bool has_separate = false;       ///< WeightLayout::kSeparate exists
  bool has_grid = false;           ///< the separate scales form a grid whose block size and dtype each Weight states
  std::int32_t code_bits = 0;      ///< bits of a code in the plain and separate layouts
  std::int32_t scale_values = 0;   ///< consecutive values of a row under one block scale; 0: none, or a grid's
  DType code_dtype = DType::kU8;   ///< element type of the array of codes in the plain and separate layouts
  DType scale_dtype = DType::kU8;  ///< element type of separate scales (of a grid: the most usual one)
  OuterScaleUse outer_scale = OuterScaleUse::kNone;

  /// Block scales exist in some layout, so kernels must apply them before products are summed.
  [[nodiscard]] constexpr bool has_block_scales() const { return has_interleaved || has_separate; }

  [[nodiscard]] constexpr bool has_layout(WeightLayout layout) const {
    switch (layout) {
      case WeightLayout::kPlain: return has_plain;
      case WeightLayout::kInterleaved: return has_interleaved;
      case WeightLayout::kSeparate: return has_separate;
    }
    return false;
  }

  /// The number that `cols` of a weight must be a multiple of.
  [[nodiscard]] constexpr std::int32_t cols_multiple(WeightLayout layout) const {
    if (layout == WeightLayout::kInterleaved) return block_values;
    return layout == WeightLayout::kSeparate && scale_values > 0 ? scale_values : 1;
  }

  /// Bytes of a row's codes (with their scales, if interleaved), or nothing where the layout doesn't exist, `cols` is
  /// not positive or not a multiple of cols_multiple(), or the size overflows. Safe on numbers from a file.
  [[nodiscard]] constexpr std::optional<std::int64_t> row_bytes(WeightLayout layout, std::int64_t cols) const {
    if (!has_layout(layout) || cols <= 0 || cols % cols_multiple(layout) != 0) return std::nullopt;
    if (cols > std::numeric_limits<std::int64_t>::max() / 64) return std::nullopt;
    if (layout == WeightLayout::kInterleaved) return cols / block_values * block_bytes;
    return cols * code_bits / 8;
  }
};

namespace format_detail {

template <class F>
constexpr FormatInfo make_info() {
  FormatInfo info;
  info.name = F::kName;
  info.gguf_type = F::kGgufType;
  info.block_values = F::kBlockValues;
  info.block_bytes = F::kBlockBytes;
  info.has_plain = HasPlain<F>;
  info.has_interleaved = HasInterleaved<F>;
  info.has_separate = HasSeparate<F>;
  info.outer_scale = F::kOuterScale;
  if constexpr (HasCodes<F>) {
    info.scale_values = F::kScaleValues;
    if constexpr (HasPlain<F> || HasSeparate<F>) {
      info.code_bits = F::Element::kBits;
      info.code_dtype = dtype_of<typename F::Element>();
    }
    if constexpr (HasSeparate<F>) {
      info.has_grid = std::is_same_v<typename F::Scale, GridScale>;
      info.scale_dtype = dtype_of<typename F::Scale>();
      if (info.has_grid) info.scale_dtype = DType::kF32;
    }
  }
  return info;
}

template <class... Formats>
constexpr auto make_infos(FormatTypes<Formats...>) {
  return std::array<FormatInfo, sizeof...(Formats)>{make_info<Formats>()...};
}

}  // namespace format_detail

/// All formats, in the order of their ids.
inline constexpr auto kFormats = format_detail::make_infos(FormatList{});

/// The id of a format that is known by type.
template <class F>
inline constexpr FormatId kFormatIdOf = static_cast<FormatId>(format_detail::index_of<F>(FormatList{}));

[[nodiscard]] constexpr const FormatInfo& format_info(FormatId id) { return kFormats[static_cast<std::size_t>(id)]; }

/// The format called `name` ("q4_0"), or nothing.
[[nodiscard]] constexpr std::optional<FormatId> find_format(std::string_view name) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (kFormats[i].name == name) return static_cast<FormatId>(i);
  }
  return std::nullopt;
}

/// The format of a GGUF tensor type number, or nothing where Vernier doesn't support it.
[[nodiscard]] constexpr std::optional<FormatId> find_gguf_type(std::int64_t type) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (type >= 0 && kFormats[i].gguf_type == type) return static_cast<FormatId>(i);
  }
  return std::nullopt;
}

/// The unquantised format whose values are plain elements of `type` (F32, F16, BF16), or nothing.
[[nodiscard]] constexpr std::optional<FormatId> find_plain_format(DType type) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    const FormatInfo& info = kFormats[i];
    const bool is_complete = info.has_plain && info.outer_scale == OuterScaleUse::kNone;
    if (is_complete && info.code_dtype == type) return static_cast<FormatId>(i);
  }
  return std::nullopt;
}

namespace format_detail {

template <class Function, class F, class... Rest>
constexpr decltype(auto) visit(std::size_t index, Function&& function, FormatTypes<F, Rest...>) {
  if constexpr (sizeof...(Rest) > 0) {
    if (index > 0) return visit(index - 1, std::forward<Function>(function), FormatTypes<Rest...>{});
  }
  return std::forward<Function>(function)(std::type_identity<F>{});
}

}  // namespace format_detail

/// Calls `function(std::type_identity<F>{})` with the struct F of the format `id`, which must come from this list.
///   visit_format(weight.format, []<class F>(std::type_identity<F>) { ... F::kBlockBytes ... });
template <class Function>
constexpr decltype(auto) visit_format(FormatId id, Function&& function) {
  return format_detail::visit(static_cast<std::size_t>(id), std::forward<Function>(function), FormatList{});
}

}  // namespace vernier
