// What a warp of an expert's product holds of a row tile at a time: as many units of a packing as have the bytes of a
// chunk of 4-bit codes.
#pragma once

#include "backend/cuda/fragment/stage.cuh"

namespace vernier::cuda {

/// Units of a step.
VN_HOST_DEVICE constexpr int few_step_units(Packing packing) { return 16 / code_bits(packing); }

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
template <>
struct FewStageOf<Packing::kBF16> {
  using Type = PlainStage;
};
template <Packing kPacking>
using FewStage = typename FewStageOf<kPacking>::Type;
static_assert(few_step_units(Packing::kE4M3ByGrid) * kUnitCols == kGridCols);

/// Unit i of a stage from the lane's bytes.
template <Packing kPacking>
__device__ __forceinline__ void load_unit_of(const std::byte* from, int i, CodedStage<kPacking, kChunkUnits>& stage) {
  stage.codes[i] = load_stream(from);
}
template <int kGrid>
__device__ __forceinline__ void load_unit_of(const std::byte* from, int i, ByteStage<kGrid, 2>& stage) {
  stage.codes[i][0] = load_stream(from);
  stage.codes[i][1] = load_stream(from + kPieceBytes);
}
__device__ __forceinline__ void load_unit_of(const std::byte* from, int /*i*/, PlainStage& stage) {
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) stage.codes[piece] = load_stream(from + piece * kPieceBytes);
}

/// Scales that decoding folds in.
template <Packing kPacking>
__device__ __forceinline__ void set_scales(CodedStage<kPacking, kChunkUnits>& stage, const uint2& scales) {
  stage.scales = scales;
}
template <class Stage>
__device__ __forceinline__ void set_scales(Stage& /*stage*/, const uint2& /*scales*/) {}

}  // namespace vernier::cuda
