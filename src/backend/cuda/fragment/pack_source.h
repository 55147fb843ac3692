// Codes and scales of a weight as published, one by one: what packing reads. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/fragment/weight_ref.h"
#include "format/format_list.h"

namespace vernier::cuda {

/// How weights of a format may be packed, whatever the layout that they come in.
template <class F>
constexpr Packing packing_for() {
  if constexpr (HasCodes<F>) {
    using Element = typename F::Element;
    using Scale = typename F::Scale;
    if constexpr (std::is_same_v<Element, E2M1Codec> && std::is_same_v<Scale, UE4M3Codec>) return Packing::kE2M1ByE4M3;
    if constexpr (std::is_same_v<Element, E2M1Codec> && std::is_same_v<Scale, E8M0Codec>) return Packing::kE2M1ByE8M0;
    if constexpr (std::is_same_v<Element, E4M3Codec> && std::is_same_v<Scale, NoScale>) return Packing::kE4M3;
    if constexpr (std::is_same_v<Element, E4M3Codec> && std::is_same_v<Scale, GridScale>) return Packing::kE4M3ByGrid;
    if constexpr (std::is_same_v<Element, BF16Codec> && std::is_same_v<Scale, NoScale>) return Packing::kBF16;
    if constexpr (std::is_same_v<Element, F16Codec> && std::is_same_v<Scale, NoScale>) return Packing::kF16;
    if constexpr (std::is_same_v<Element, F32Codec> && std::is_same_v<Scale, NoScale>) return Packing::kF32;
  }
  return Packing::kNone;
}

/// Reads a weight of format F whose packing_for() is not kNone.
template <class F, WeightLayout kLayout>
struct PackSource {
  static constexpr Packing kPacking = packing_for<F>();
  static constexpr bool kHasScales = scale_cols(kPacking) > 0;
  const std::byte* codes;
  std::int64_t row_stride;
  const std::byte* scales;  ///< kSeparate, without a grid
  std::int64_t scale_stride;

  VN_HOST_DEVICE std::uint32_t code(std::int64_t row, std::int64_t col) const {
    const std::byte* from = codes + row * row_stride;
    if constexpr (kLayout == WeightLayout::kInterleaved) {
      return load_code<F, typename F::Interleaved>(from + col / F::kBlockValues * F::kBlockBytes,
                                                   col % F::kBlockValues);
    } else if constexpr (kLayout == WeightLayout::kSeparate) {
      return load_code<F, typename F::Separate>(from, col);
    } else {
      return load_code<F, typename F::Plain>(from, col);
    }
  }

  /// The scale code of block `block` of kScaleValues columns.
  VN_HOST_DEVICE std::uint8_t scale(std::int64_t row, std::int64_t block) const requires(kHasScales) {
    if constexpr (kLayout == WeightLayout::kInterleaved) {
      constexpr int kBlocks = F::kBlockValues / F::kScaleValues;
      const std::byte* from = codes + row * row_stride + block / kBlocks * F::kBlockBytes;
      return load_scale_code<F, typename F::Interleaved>(from, block % kBlocks);
    } else {
      return load_scale_code<F, typename F::Separate>(scales + row * scale_stride, block);
    }
  }
};

/// The same weight of F32 as BF16, which its numbers are.
template <class Source>
struct UpperHalves {
  static constexpr bool kHasScales = false;
  Source source;
  VN_HOST_DEVICE std::uint32_t code(std::int64_t row, std::int64_t col) const { return source.code(row, col) >> 16; }
};
/// Whether bits of F32, or those of any number of them or-ed, are BF16's.
VN_HOST_DEVICE constexpr bool is_upper_half(std::uint32_t bits) { return (bits & 0xFFFFU) == 0; }

/// Calls function(source) with the PackSource of a weight that can be packed.
template <class Function>
constexpr void visit_pack_source(FormatId format, WeightLayout layout, const WeightRef& from, Function function) {
  visit_format(format, [&]<class F>(std::type_identity<F>) {
    if constexpr (packing_for<F>() != Packing::kNone) {
      if constexpr (HasPlain<F>) {
        if (layout == WeightLayout::kPlain) {
          function(PackSource<F, WeightLayout::kPlain>{from.codes, from.row_stride, nullptr, 0});
        }
      }
      if constexpr (HasInterleaved<F>) {
        if (layout == WeightLayout::kInterleaved) {
          function(PackSource<F, WeightLayout::kInterleaved>{from.codes, from.row_stride, nullptr, 0});
        }
      }
      if constexpr (HasSeparate<F>) {
        if (layout == WeightLayout::kSeparate) {
          function(PackSource<F, WeightLayout::kSeparate>{from.codes, from.row_stride, from.scales, from.scale_stride});
        }
      }
    }
  });
}

/// Word `index` of a packed weight, counted over all of its units. Rows and columns beyond the weight are zeros.
template <class Source>
VN_HOST_DEVICE std::uint32_t packed_word(const Source& source, const PackedShape& shape, std::int64_t rows,
                                         std::int64_t cols, std::int64_t index) {
  const int words = unit_bytes(shape.packing) / 4;
  const std::int64_t unit = index / words;
  const std::int64_t row = unit / shape.units * kTileRows;
  const std::int64_t col = unit % shape.units * kUnitCols;
  return pack_word(shape.packing, static_cast<int>(index % words), [&](int r, int c) -> std::uint32_t {
    return row + r < rows && col + c < cols ? source.code(row + r, col + c) : 0;
  });
}

/// The scale of a row and block at its place in the packed weight's scales.
template <class Source>
VN_HOST_DEVICE std::uint8_t packed_scale(const Source& source, const PackedShape& shape, std::int64_t row,
                                         std::int64_t block) {
  const std::uint8_t code = source.scale(row, block);
  return shape.packing == Packing::kE2M1ByE4M3 ? pack_scale(code) : code;
}
VN_HOST_DEVICE constexpr std::int64_t packed_scale_at(const PackedShape& shape, std::int64_t row, std::int64_t block) {
  const int blocks = kChunkCols / scale_cols(shape.packing);
  const std::int64_t chunk = row / kTileRows * shape.chunks + block / blocks;
  return chunk * chunk_scale_bytes(shape.packing) +
         scale_place(shape.packing, static_cast<int>(row % kTileRows), static_cast<int>(block % blocks));
}

}  // namespace vernier::cuda
