// Random valid bytes of a weight in any format and layout, spread so that a product with inputs of variance 1 has
// variance 1: activations stay finite through any number of layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/format_id.h"
#include "tensor/weight.h"

namespace vernier::bench {

/// A stretch of codes and one of block scales, to be repeated as often as a weight needs, from anywhere at which a
/// block begins.
struct BlockTile {
  std::vector<std::byte> codes;
  std::size_t code_unit = 1;      ///< bytes of a block (interleaved) or element
  std::vector<std::byte> scales;  ///< separate block scales; else empty
  std::size_t scale_unit = 1;     ///< bytes of a scale
  float outer = 1.0F;             ///< second-level factor; formats without one have it in their scales
};

/// `cols` is the length of the rows that will be made of it: values have a standard deviation of 1 / sqrt(cols).
[[nodiscard]] BlockTile make_tile(FormatId format, WeightLayout layout, std::int64_t cols, std::uint64_t seed);

/// Fills `to` from `tile`, whose parts are `unit` bytes; where it begins in the tile depends on `seed`.
void fill_from_tile(const std::vector<std::byte>& tile, std::size_t unit, std::uint64_t seed, std::byte* to,
                    std::size_t size);

}  // namespace vernier::bench
