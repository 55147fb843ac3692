// Device memory of weights. Small weights (a model may have tens of thousands of experts) share slabs.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

/// Aligned to 256 bytes; lives as long as `memory` does.
struct WeightBytes {
  std::byte* data = nullptr;
  std::shared_ptr<const Buffer> memory;
};

/// Safe from several threads. kOutOfMemory as allocate_device().
[[nodiscard]] Result<WeightBytes> allocate_weight_bytes(const CudaContext& context, std::size_t size_bytes);

}  // namespace vernier::cuda
