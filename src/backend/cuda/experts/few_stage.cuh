// What a warp of an expert's product holds of a row tile at a time: the units of a step, which are the same bytes for
// each packing.
#pragma once

#include "backend/cuda/fragment/stage.cuh"

namespace vernier::cuda {

/// Units of a step.
VN_HOST_DEVICE constexpr int few_step_units(Packing packing) { return 8 / code_bits(packing); }

template <Packing kPacking>
struct FewStageOf {
  using Type = CodedStage<kPacking, few_step_units(kPacking)>;
};
template <>
struct FewStageOf<Packing::kE4M3> {
  using Type = ByteStage<0, few_step_units(Packing::kE4M3)>;
};
template <>
struct FewStageOf<Packing::kE4M3ByGrid> {
  using Type = ByteStage<kGridCols, few_step_units(Packing::kE4M3ByGrid)>;
};
template <Packing kPacking>
using FewStage = typename FewStageOf<kPacking>::Type;

/// Unit i of a stage from the lane's bytes.
template <Packing kPacking, int kUnits>
__device__ __forceinline__ void load_unit_of(const std::byte* from, int i, CodedStage<kPacking, kUnits>& stage) {
  stage.codes[i] = load_stream(from);
}
template <int kGrid, int kUnits>
__device__ __forceinline__ void load_unit_of(const std::byte* from, int i, ByteStage<kGrid, kUnits>& stage) {
  stage.codes[i][0] = load_stream(from);
  stage.codes[i][1] = load_stream(from + kPieceBytes);
}

}  // namespace vernier::cuda
