// Where input lies that meets grouped weights (group_packing.h) in asynchronous products: units of 64 columns as rows
// of eight pieces of 16 bytes, two for each fragment. Host and device.
#pragma once

#include "backend/cuda/fragment/group_packing.h"

namespace vernier::cuda {

/// Tiles of a row of `units` units.
VN_HOST_DEVICE constexpr int group_tiles(const GroupShape& shape, int units) {
  return units + (shape.has_minimum ? (units + kChunkUnits - 1) / kChunkUnits : 0);
}

/// The first column of piece `piece` of 16 bytes (before they are permuted by row); its other pairs of columns follow
/// group_step() apart.
VN_HOST_DEVICE constexpr int group_piece_column(const GroupShape& shape, int piece) {
  const int fragment = piece / 2;
  const int first = shape.group_cols() == 16 ? fragment * 16 : fragment / 2 * 32 + fragment % 2 * 4;
  return first + piece % 2 * 2;
}
VN_HOST_DEVICE constexpr int group_step(const GroupShape& shape) { return shape.group_cols() == 16 ? 4 : 8; }
/// Where a piece of a row lies in a tile: bytes.
VN_HOST_DEVICE constexpr int group_piece_offset(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

}  // namespace vernier::cuda
