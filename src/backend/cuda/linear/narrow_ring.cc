#include "backend/cuda/linear/narrow_ring.h"

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/segments.h"

namespace vernier::cuda {

bool has_ring(const CudaContext& context, const LinearBatch& batch) {
  constexpr int kMostColumns = 16;
  const WeightRef& weight = batch.matrix[0].weight;
  if (weight.packing == Packing::kNone || has_groups(weight.packing)) return false;
  if (!has_async(context, weight.packing)) return false;  // built alike, of the same packings
  const int most = code_bits(weight.packing) == 8 ? kMostColumns / 2 : kMostColumns;  // as measured
  return batch.tokens * batch.x.terms <= most && warps_per_tile(weight.units) == kSegments;
}

const RingKernels& ring_kernels(Packing packing) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return kRingE2M1ByE4M3;
    case Packing::kE2M1ByE8M0: return kRingE2M1ByE8M0;
    case Packing::kE4M3: return kRingE4M3;
    case Packing::kE4M3ByGrid: return kRingE4M3ByGrid;
    default: return kRingBF16;
  }
}

}  // namespace vernier::cuda
