// Decoding of weights of any format and layout, as published, straight from the format headers: a thread decodes one
// unit of consecutive values of a row to fp32. Slow and general; the formats that matter most have faster primitives.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/fragment/weight_kind.h"
#include "backend/cuda/fragment/weight_ref.h"
#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier::cuda {

namespace decode_detail {

template <class F>
inline constexpr bool kHasGrid = false;
template <class F>
requires HasSeparate<F>
inline constexpr bool kHasGrid<F> = std::is_same_v<typename F::Scale, GridScale>;

template <class F>
__device__ void decode_elements(const std::byte* codes, int begin, int count, float* out) {
  using Layout = typename F::Plain;
  for (int i = 0; i < count; ++i) out[i] = decode_code<typename F::Element>(load_code<F, Layout>(codes, begin + i));
}

template <class F>
__device__ void decode_grid(const std::byte* codes, int begin, int count, float* out) {
  using Layout = typename F::Separate;
  for (int i = 0; i < count; ++i) out[i] = decode_code<typename F::Element>(load_code<F, Layout>(codes, begin + i));
}

template <class F>
__device__ void decode_format(const WeightRef& w, int layout, int row, int begin, int count, float* out) {
  const std::byte* codes = w.codes + row * w.row_stride;
  if constexpr (HasPlain<F>) {
    if (layout == static_cast<int>(WeightLayout::kPlain)) return decode_elements<F>(codes, begin, count, out);
  }
  if constexpr (HasInterleaved<F>) {
    if (layout == static_cast<int>(WeightLayout::kInterleaved)) {
      const std::byte* block = codes + std::int64_t{begin / F::kBlockValues} * F::kBlockBytes;
      if constexpr (HasCodes<F>) {
        decode_codes<F, typename F::Interleaved>(block, block, begin % F::kBlockValues, count, out);
      } else {
        F::decode_block(block, out);
      }
    }
  }
  if constexpr (kHasGrid<F>) {
    if (layout == static_cast<int>(WeightLayout::kSeparate)) decode_grid<F>(codes, begin, count, out);
  } else if constexpr (HasSeparate<F>) {
    if (layout == static_cast<int>(WeightLayout::kSeparate)) {
      const std::byte* scales = w.scales + (w.first_row + row) / w.scale_block_rows * w.scale_stride;
      decode_codes<F, typename F::Separate>(codes, scales, begin, count, out);
    }
  }
}

template <class... Formats>
__device__ void decode_any(FormatTypes<Formats...>, const WeightRef& w, int row, int begin, int count, float* out) {
  const int format = w.kind / kLayoutCount;
  const int layout = w.kind % kLayoutCount;
  int index = 0;
  ((format == index++ ? decode_format<Formats>(w, layout, row, begin, count, out) : void()), ...);
}

/// The same of packed groups: scale * (code - centre), or scale * code with a minimum, with ggml's two roundings.
__device__ inline float decode_group(const WeightRef& w, int row, int col) {
  const GroupShape shape = group_shape(w.packing);
  const std::int64_t chunks = (w.units + kChunkUnits - 1) / kChunkUnits;
  const std::byte* chunk = w.codes + (row / kTileRows * chunks + col / kChunkCols) * shape.chunk_bytes();
  const int r = row % kTileRows;
  const int k = col % kChunkCols;
  const auto code = static_cast<int>(unpack_group_code(shape, reinterpret_cast<const std::uint32_t*>(chunk), r, k));
  const std::byte* scales = chunk + shape.scales_at() + r * 16;
  const std::byte* factors = chunk + shape.factors_at() + r * 4;
  const float value = shape.has_table   ? Iq4Codec::decode(static_cast<Iq4Codec::Code>(code))
                      : shape.bits == 8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                        : static_cast<float>(code - static_cast<int>(w.scale_bias & 0x7F));
  if (!shape.has_factors()) {
    const float scale = load_f16(scales + k / 32 * 2);
    if (!shape.has_minimum) return __fmul_rn(scale, value);
    return multiply_then_add(scale, value, load_f16(chunk + shape.minimums_at() + r * 16 + k / 32 * 2));
  }
  const bool in_pairs = shape.scales == GroupScales::kPairs;
  const int packed = load_u8(scales + (in_pairs ? k / 32 * 2 : k / 16));
  const bool in_nibbles = shape.scales == GroupScales::kNibbles;
  const int sub_scale = in_nibbles ? packed & 0xF : static_cast<int>(static_cast<std::int8_t>(packed));
  const float scale = __fmul_rn(load_f16(factors), static_cast<float>(sub_scale));
  if (!shape.has_minimum) return __fmul_rn(scale, value);
  const int sub_minimum = in_nibbles ? packed >> 4 : load_u8(scales + k / 32 * 2 + 1);
  return multiply_then_add(scale, value, -__fmul_rn(load_f16(factors + 2), static_cast<float>(sub_minimum)));
}

/// A packed weight, value by value.
__device__ inline float decode_packed(const WeightRef& w, int row, int col) {
  if (has_groups(w.packing)) return decode_group(w, row, col);
  const PackedShape shape = packed_shape(w.packing, w.rows, w.cols);
  const std::int64_t unit = row / kTileRows * shape.units + col / kUnitCols;
  const auto* words = reinterpret_cast<const std::uint32_t*>(w.codes + unit * unit_bytes(w.packing));
  const std::uint32_t code = unpack_code(w.packing, words, row % kTileRows, col % kUnitCols);
  if (w.packing == Packing::kBF16) return BF16Codec::decode(static_cast<BF16Codec::Code>(code));
  if (w.packing == Packing::kF16) return F16Codec::decode(static_cast<F16Codec::Code>(code));
  if (w.packing == Packing::kF32) return F32Codec::decode(code);
  if (code_bits(w.packing) == 8) return E4M3Codec::decode(static_cast<E4M3Codec::Code>(code));
  const std::int64_t chunk = row / kTileRows * shape.chunks + col / kChunkCols;
  const int block = col % kChunkCols / scale_cols(w.packing);
  const std::uint8_t scale =
      load_u8(w.scales + chunk * chunk_scale_bytes(w.packing) + scale_place(w.packing, row % kTileRows, block));
  const float value = E2M1Codec::decode(static_cast<E2M1Codec::Code>(code));
  return value *
         (w.packing == Packing::kE2M1ByE4M3 ? UE4M3Codec::decode(unpack_scale(scale)) : E8M0Codec::decode(scale));
}

}  // namespace decode_detail

/// Values begin .. begin + count of a row, packed or not; `begin` and `count` within one unit of w.unit_values (a whole
/// one where that is a block). Block scales are applied but for those of a grid, the outer factor is not.
static __device__ __noinline__ void decode_unit(const WeightRef& w, int row, int begin, int count, float* out) {
  if (w.packing != Packing::kNone) {
    for (int i = 0; i < count; ++i) out[i] = decode_detail::decode_packed(w, row, begin + i);
    return;
  }
  decode_detail::decode_any(FormatList{}, w, row, begin, count, out);
}

/// The scale of a grid for a row and the grid column of column k.
__device__ inline float grid_scale(const WeightRef& w, int row, int k) {
  const std::byte* scales = w.scales + (w.first_row + row) / w.scale_block_rows * w.scale_stride;
  const int i = k / w.scale_block_cols;
  switch (w.scale_dtype) {
    case DType::kF32: return F32Codec::decode(load_element<F32Codec>(scales, i));
    case DType::kBF16: return BF16Codec::decode(load_element<BF16Codec>(scales, i));
    default: return E8M0Codec::decode(load_element<E8M0Codec>(scales, i));
  }
}

/// The outer factor of a row on a product.
__device__ inline float apply_outer(const WeightRef& w, int row, float product) {
  const float factor = w.row_factors != nullptr ? w.row_factors[row] : w.factor;
  return w.divides ? __fdiv_rn(product, factor) : __fmul_rn(product, factor);
}

}  // namespace vernier::cuda
