// Room for blocks of several kernels on a multiprocessor.
#pragma once

#include <cuda_runtime.h>

namespace vernier::cuda {

/// Has a multiprocessor that a kernel's blocks find idle give all that it can to shared memory, so that blocks of the
/// kernels behind find room beside them: how much it gives changes only while it is idle.
template <class Kernel>
cudaError_t leave_shared_memory(Kernel* kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

}  // namespace vernier::cuda
