// Packing of weights on the device.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

/// What packing found out on its way.
struct PackReport {
  std::int32_t unfit = 0;       ///< codes or scales that packed weights cannot hold: NaN, a scale's sign, F32's range
  std::int32_t smallest = 255;  ///< of the scale codes
  std::int32_t largest = 0;
};

/// Packs a weight that lies on the device as published. `report` is in device memory and begins as PackReport{}.
struct PackJob {
  FormatId format{};
  WeightLayout layout{};
  WeightRef from;
  PackedShape shape;
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  PackReport* report = nullptr;
};
[[nodiscard]] cudaError_t pack_weight(const PackJob& job, cudaStream_t stream);

}  // namespace vernier::cuda
