// The GPU's detours through the host. Small arrays are written by a kernel into host memory that both see, and a number
// behind them tells the waiting host; a kernel fetches what goes back. That takes a few microseconds, where copies and
// synchronisation take tens. Large arrays, or all where the system grants no such memory, are copied.
#pragma once

#include "backend/copy_memory.h"
#include "backend/cuda/cuda_context.h"
#include "backend/host_detour.h"

namespace vernier::cuda {

class HostDetours {
 public:
  HostDetours(CudaContext& context, CopyMemory& memory) : context_(context), memory_(memory) {}

  [[nodiscard]] Status run(const HostDetour& detour);

 private:
  [[nodiscard]] Status prepare_shared();
  [[nodiscard]] Status run_shared(const HostDetour& detour, std::size_t bytes);
  [[nodiscard]] Status run_copied(const HostDetour& detour, std::size_t bytes);
  [[nodiscard]] Status wait_for(unsigned blocks, unsigned number);

  CudaContext& context_;
  CopyMemory& memory_;
  bool tried_ = false;
  Buffer shared_;        ///< flags of blocks, then arrays; empty where the system refuses it
  unsigned number_ = 0;  ///< of the last hand-over
  Buffer copied_;        ///< for large arrays
};

}  // namespace vernier::cuda
