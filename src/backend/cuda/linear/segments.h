// The cut of a weight's columns into partial sums. Every kernel for packed weights sums within a segment in the order
// of columns, and the segments in their order: results then agree to the bit.
#pragma once

#include "backend/cuda/fragment/packing.h"

namespace vernier::cuda {

constexpr int kSegments = 8;

/// First unit of a segment (of segment kSegments: the end) of a row of `units` units. Whole chunks, evenly.
VN_HOST_DEVICE constexpr int segment_begin(int units, int segment) {
  const int chunks = (units + kChunkUnits - 1) / kChunkUnits;
  const int begin = chunks * segment / kSegments * kChunkUnits;
  return begin < units ? begin : units;
}

/// Where a row has few chunks, most segments are empty, and the others a chunk each: so many warps do for a row tile.
VN_HOST_DEVICE constexpr int warps_per_tile(int units) {
  const int chunks = (units + kChunkUnits - 1) / kChunkUnits;
  return chunks > 4 ? kSegments : chunks > 2 ? 4 : chunks;
}

}  // namespace vernier::cuda
