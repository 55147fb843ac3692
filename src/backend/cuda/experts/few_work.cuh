// How a launch for experts with few tokens cuts its work among blocks and their warps.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/segments.h"

namespace vernier::cuda {

constexpr int kFewWarps = 16;

/// The pairs of row tiles of all groups, one group behind the other; a block takes [begin, end) of them.
struct FewPlan {
  const MatrixRef* matrix = nullptr;  ///< [experts]
  int pairs = 0;                      ///< of a group
  int units = 0;                      ///< of a row
  int steps = 0;                      ///< of a row: a step is what a warp asks for at a time
  int segments = 0;                   ///< of a row, that are not empty
  int begin_of[kSegments + 1] = {};   ///< first step of each segment, and the end
  int part_of_segment = 0;            ///< 2^16 / segments, rounded up
  int stride = 0;                     ///< of a row of the input in shared memory
  int most_rows = 0;                  ///< of the input that it has room for
  int most_slots = 0;                 ///< pairs that shared memory has room for
  // Of the block, on the device:
  int begin = 0;
  int end = 0;
  int slots = 0;  ///< pairs, the last ones, whose segments are dealt to the warps

  __device__ void cut(int groups) {
    const unsigned all = static_cast<unsigned>(groups * pairs);
    const unsigned each = all / gridDim.x;
    const unsigned more = all - each * gridDim.x;  // blocks with one pair more
    begin = static_cast<int>(blockIdx.x * each + min(blockIdx.x, more));
    end = begin + static_cast<int>(each + (blockIdx.x < more ? 1 : 0));
    slots = (end - begin) % kFewWarps;
    if (slots > most_slots) slots = 0;  // they go round once more, some warps without
  }
};

/// Of a row.
__device__ __forceinline__ int chunks_of(const FewPlan& plan) { return (plan.units + kChunkUnits - 1) / kChunkUnits; }

/// What a launch does with the products.
struct FewTask {
  GatedOutput output;      ///< of gate and up
  CombineExperts combine;  ///< where `arrivals` isn't null
  unsigned* arrivals = nullptr;
};

/// Segments [segment, end_segment) of a pair of tiles.
struct FewRun {
  int group = 0;
  int pair = 0;  ///< of the group
  int segment = 0;
  int end_segment = 0;
  int slot = 0;  ///< where the segments' sums are left; -1: all are here
};

/// A warp's way through its runs.
class FewWalk {
 public:
  FewWalk() = default;
  __device__ FewWalk(const FewPlan& plan, int warp)
      : next_(plan.begin + warp),
        group_(plan.begin / plan.pairs),
        at_(plan.slots * plan.segments * warp / kFewWarps),
        end_(plan.slots * plan.segments * (warp + 1) / kFewWarps) {}

  __device__ __forceinline__ bool next(const FewPlan& plan, FewRun& run) {
    const int split = plan.end - plan.slots;
    int pair = next_;
    if (pair < split) {
      next_ += kFewWarps;
      run.segment = 0;
      run.end_segment = plan.segments;
      run.slot = -1;
    } else {
      if (at_ >= end_) return false;
      run.slot = at_ * plan.part_of_segment >> 16;
      run.segment = at_ - run.slot * plan.segments;
      run.end_segment = min(plan.segments, run.segment + end_ - at_);
      at_ += run.end_segment - run.segment;
      pair = split + run.slot;
    }
    while (pair >= (group_ + 1) * plan.pairs) ++group_;
    run.group = group_;
    run.pair = pair - group_ * plan.pairs;
    return true;
  }

 private:
  int next_ = 0;
  int group_ = 0;
  int at_ = 0;
  int end_ = 0;
};

/// A group of ExpertGroups. What a kernel in front has written is read past the first-level cache: this one may have
/// begun early.
struct FewGroup {
  int number = -1;
  int expert = -1;  ///< -1: none that is known
  int first = 0;    ///< place
  int count = 0;
};
__device__ __forceinline__ int expert_of(const ExpertBatch& batch, int group) {
  const int expert = __ldcg(batch.groups.expert + group);
  return expert < batch.experts ? expert : -1;
}
__device__ __forceinline__ FewGroup group_of(const ExpertBatch& batch, int number) {
  FewGroup group = {number, expert_of(batch, number), number, 1};
  if (batch.groups.count != nullptr) {
    group.first = __ldcg(batch.groups.first + number);
    group.count = __ldcg(batch.groups.first + number + 1) - group.first;
  }
  return group;
}

/// What a block looks up once of its first groups, in shared memory: a look-up further away costs a warp as much as
/// multiplying a chunk.
struct FewGroups {
  static constexpr int kMost = 4;
  MatrixRef matrix[kMost][2];
  FewGroup group[kMost];
};
constexpr int kFewGroupsBytes = (sizeof(FewGroups) + 127) / 128 * 128;

__device__ __forceinline__ std::int64_t use_of(const ExpertBatch& batch, int place) {
  return batch.groups.count == nullptr ? place : __ldcg(batch.groups.uses + place);
}
__device__ __forceinline__ std::int64_t x_row(const ExpertBatch& batch, int place) {
  return batch.x_by_place ? place : use_of(batch, place) / batch.top_k;
}
__device__ __forceinline__ std::int64_t y_row(const ExpertBatch& batch, int place) {
  return batch.y_by_use ? use_of(batch, place) : place;
}

/// Asks for a table of experts, of which a thread takes a line.
__device__ __forceinline__ void prefetch_table(const MatrixRef* table, int experts) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 128;
  if (at >= experts * static_cast<std::int64_t>(sizeof(MatrixRef))) return;
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(reinterpret_cast<const std::byte*>(table) + at));
}

}  // namespace vernier::cuda
