// The order of bytes that the CUDA kernels want is reversible: unpacking gives the published bytes back. No GPU needed.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/fragment/group_source.h"
#include "backend/cuda/fragment/group_tiles.h"
#include "backend/cuda/fragment/pack_source.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

using namespace vernier::cuda;

WeightRef reference(const Weight& weight) {
  WeightRef ref;
  ref.codes = weight.codes;
  ref.row_stride = weight.row_stride;
  ref.scales = weight.scales;
  ref.scale_stride = weight.scale_stride;
  return ref;
}

/// A weight's packed form in host memory.
struct Packed {
  PackedShape shape;
  std::vector<std::uint32_t> codes;
  std::vector<std::uint8_t> scales;
};

template <class Source>
Packed pack(const Source& source, const PackedShape& shape, const Weight& weight) {
  Packed packed = {.shape = shape,
                   .codes = std::vector<std::uint32_t>(static_cast<std::size_t>(shape.code_bytes() / 4)),
                   .scales = std::vector<std::uint8_t>(static_cast<std::size_t>(shape.scale_bytes()))};
  for (std::size_t i = 0; i < packed.codes.size(); ++i) {
    packed.codes[i] = packed_word(source, shape, weight.rows, weight.cols, static_cast<std::int64_t>(i));
  }
  if constexpr (Source::kHasScales) {
    for (std::int64_t row = 0; row < weight.rows; ++row) {
      for (std::int64_t block = 0; block < weight.cols / scale_cols(shape.packing); ++block) {
        packed.scales[static_cast<std::size_t>(packed_scale_at(shape, row, block))] =
            packed_scale(source, shape, row, block);
      }
    }
  }
  return packed;
}

std::uint32_t code_of(const Packed& packed, std::int64_t row, std::int64_t col) {
  const std::int64_t unit = row / kTileRows * packed.shape.units + col / kUnitCols;
  const std::uint32_t* words = packed.codes.data() + unit * unit_bytes(packed.shape.packing) / 4;
  return unpack_code(packed.shape.packing, words, static_cast<int>(row % kTileRows), static_cast<int>(col % kUnitCols));
}

std::uint8_t scale_of(const Packed& packed, std::int64_t row, std::int64_t block) {
  const std::uint8_t code = packed.scales[static_cast<std::size_t>(packed_scale_at(packed.shape, row, block))];
  return packed.shape.packing == Packing::kE2M1ByE4M3 ? unpack_scale(code) : code;
}

/// Puts a code back where the format has it.
template <class F, class Layout>
void put_code(std::byte* codes, std::int64_t i, std::uint32_t code) {
  const CodePosition at = code_position<F, Layout>(i);
  if constexpr (F::Element::kBits == 4) {
    codes[at.byte] |= static_cast<std::byte>(code << at.shift);
  } else {
    std::memcpy(codes + at.byte, &code, F::Element::kBits / 8);
  }
}

/// Unpacks into rows as published and compares them with the weight's.
template <class F, class Layout>
void expect_same_bytes(const Packed& packed, const Weight& weight) {
  const bool interleaved = weight.layout == WeightLayout::kInterleaved;
  const std::int64_t row_bytes = *format_info(weight.format).row_bytes(weight.layout, weight.cols);
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    std::vector<std::byte> codes(static_cast<std::size_t>(row_bytes));
    std::vector<std::byte> scales;
    for (std::int64_t col = 0; col < weight.cols; ++col) {
      const std::int64_t block = interleaved ? col / F::kBlockValues : 0;
      std::byte* const base = codes.data() + (interleaved ? block * F::kBlockBytes : 0);
      put_code<F, Layout>(base, interleaved ? col % F::kBlockValues : col, code_of(packed, row, col));
    }
    if constexpr (requires { F::Scale::kBits; }) {
      for (std::int64_t group = 0; group < weight.cols / F::kScaleValues; ++group) {
        const auto code = static_cast<std::byte>(scale_of(packed, row, group));
        constexpr std::int64_t kGroups = F::kBlockValues / F::kScaleValues;
        if (interleaved) {
          codes[static_cast<std::size_t>(group / kGroups * F::kBlockBytes + Layout::kScalesAt + group % kGroups)] =
              code;
        } else {
          scales.push_back(code);
        }
      }
    }
    ASSERT_EQ(std::memcmp(codes.data(), weight.row_codes(row), codes.size()), 0) << F::kName << " row " << row;
    if (scales.empty()) continue;
    ASSERT_EQ(std::memcmp(scales.data(), weight.row_scales(row), scales.size()), 0) << F::kName << " row " << row;
  }
}

TEST(CudaPacking, GivesTheBytesBack) {
  for (const FormatCase& format : all_format_cases()) {
    for (const std::int64_t rows : {1, 16, 35}) {
      for (const std::int64_t blocks : {1, 3, 9}) {
        WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = rows};
        spec.cols = format.cols_multiple == 1 ? blocks * 37 : blocks * format.cols_multiple;
        spec.row_padding = blocks;
        const Weight weight = random_weight(spec);
        visit_pack_source(format.format, format.layout, reference(weight), [&]<class Source>(const Source& source) {
          visit_format(format.format, [&]<class F>(std::type_identity<F>) {
            const PackedShape shape = packed_shape(packing_for<F>(), weight.rows, weight.cols);
            const auto check = [&]<class Layout>() {
              expect_same_bytes<F, Layout>(pack(source, shape, weight), weight);
            };
            if constexpr (std::is_same_v<Source, PackSource<F, WeightLayout::kPlain>>) {
              check.template operator()<typename F::Plain>();
            } else if constexpr (std::is_same_v<Source, PackSource<F, WeightLayout::kInterleaved>>) {
              check.template operator()<typename F::Interleaved>();
            } else if constexpr (std::is_same_v<Source, PackSource<F, WeightLayout::kSeparate>>) {
              check.template operator()<typename F::Separate>();
            }
          });
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Every number of a block is where the packing says: codes, scales and factors are all that a block holds.
template <class F>
void expect_same_groups(const Weight& weight) {
  using Source = GroupSource<F>;
  constexpr GroupShape kShape = group_shape(Source::kPacking);
  for (std::int64_t first_row = 0; first_row < weight.rows; first_row += kTileRows) {
    for (std::int64_t first_col = 0; first_col < weight.cols; first_col += kChunkCols) {
      const std::byte* codes = weight.row_codes(first_row) + first_col / F::kBlockValues * F::kBlockBytes;
      std::vector<std::uint32_t> chunk(kShape.chunk_bytes() / 4);
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        chunk[i] = packed_chunk_word<F>({codes, weight.row_stride, weight.rows - first_row, weight.cols - first_col},
                                        static_cast<int>(i));
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(chunk.data());
      for (int r = 0; r < kTileRows && first_row + r < weight.rows; ++r) {
        for (int k = 0; k < kChunkCols && first_col + k < weight.cols; ++k) {
          const std::byte* block = codes + r * weight.row_stride + k / F::kBlockValues * F::kBlockBytes;
          ASSERT_EQ(unpack_group_code(kShape, chunk.data(), r, k), Source::code(block, k % F::kBlockValues));
          ASSERT_EQ(load_u16(bytes + kShape.scales_at() + r * 16 + k / 32 * 2), Source::scale(block, k / 32));
          if (kShape.minimums_at() < kShape.factors_at()) {
            ASSERT_EQ(load_u16(bytes + kShape.minimums_at() + r * 16 + k / 32 * 2), Source::minimum(block));
          }
          if (kShape.has_factors()) {
            ASSERT_EQ(load_u32(bytes + kShape.factors_at() + r * 4), Source::factors(block));
          }
        }
      }
    }
  }
}

TEST(CudaPacking, GroupsHoldEveryNumberOfABlock) {
  for (const FormatCase& format : all_format_cases()) {
    visit_format(format.format, [&]<class F>(std::type_identity<F>) {
      if constexpr (GroupSource<F>::kPacking != Packing::kNone) {
        for (const std::int64_t rows : {1, 16, 35}) {
          expect_same_groups<F>(random_weight({.format = format.format,
                                               .layout = format.layout,
                                               .rows = rows,
                                               .cols = format.cols_multiple == 32 ? 288 : 512}));
        }
      }
    });
    if (HasFatalFailure()) return;
  }
}

// A tensor-core instruction multiplies what lies at the same k: of the fragment that a lane holds, and of the pieces of
// the input.
TEST(CudaPacking, TiledInputHasTheOrderOfGroups) {
  for (const Packing packing : {Packing::kGroups4Super, Packing::kGroups6Super}) {
    const GroupShape shape = group_shape(packing);
    for (int col = 0; col < kUnitCols; ++col) {
      const UnitPlace at = group_place(shape, 0, col);
      const int piece = at.fragment * 2 + at.register_index / 2;
      EXPECT_EQ(group_piece_column(shape, piece) + at.lane % 4 * group_step(shape) + at.half, col);
    }
  }
  EXPECT_EQ(group_tiles(group_shape(Packing::kGroups6Super), 9), 9);
  EXPECT_EQ(group_tiles(group_shape(Packing::kGroups4Super), 9), 12);
}

TEST(CudaPacking, BlockScalesKeepTheirValue) {
  for (int code = 0; code < 256; ++code) {
    const auto scale = static_cast<std::uint8_t>(code);
    if (!can_pack_scale(scale)) continue;
    const std::uint8_t packed = pack_scale(scale);
    EXPECT_EQ(unpack_scale(packed), scale);
    const float value = BF16Codec::decode(static_cast<std::uint16_t>(16U * packed + kScaleBias));
    const float expected = UE4M3Codec::decode(scale) * 0x1p118F;
    EXPECT_TRUE(value == expected || (value != value && expected != expected)) << code;
  }
}

}  // namespace
}  // namespace vernier::test
