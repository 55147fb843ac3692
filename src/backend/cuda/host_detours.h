// The GPU's detours through the host. Small arrays are written by a kernel into host memory that both see, and a number
// behind them tells the waiting host; a kernel fetches what goes back. That takes a few microseconds, where copies and
// synchronisation take tens. In a step that is a graph, the kernel that fetches waits for the host. Large arrays, or
// all where the system grants no such memory, are copied.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/copy_memory.h"
#include "backend/cuda/cuda_context.h"
#include "backend/host_detour.h"

namespace vernier::cuda {

class HostDetours {
 public:
  HostDetours(CudaContext& context, CopyMemory& memory) : context_(context), memory_(memory) {}

  [[nodiscard]] Status run(const HostDetour& detour);

  /// The detours of a step that was captured, in its order.
  struct Recorded {
    unsigned blocks = 0;
    std::vector<std::byte*> host;
    std::function<Status(std::span<std::byte* const> host)> work;
  };
  using Recording = std::vector<Recorded>;
  /// From here on detours are captured with the rest of the step, and nothing works yet. Those that can't be are
  /// kInternal: large ones, and those whose work calls operations.
  void begin_recording();
  [[nodiscard]] Recording end_recording();
  /// Calls `launch` for a step with those detours and does the host's part of it.
  [[nodiscard]] Status serve(const Recording& recording, const std::function<Status()>& launch);

 private:
  struct Shared;

  [[nodiscard]] Status prepare_shared();
  [[nodiscard]] Status run_shared(const HostDetour& detour, std::size_t bytes);
  [[nodiscard]] Status run_copied(const HostDetour& detour, std::size_t bytes);
  [[nodiscard]] Status wait_for(unsigned blocks, unsigned number);
  [[nodiscard]] Shared& shared() const { return *static_cast<Shared*>(shared_.data()); }

  CudaContext& context_;
  CopyMemory& memory_;
  bool tried_ = false;
  Buffer shared_;        ///< a Shared, then arrays; empty where the system refuses it
  Buffer current_;       ///< the number of the hand-over under way, in device memory
  unsigned number_ = 0;  ///< of the last hand-over
  Buffer copied_;        ///< for large arrays
  bool records_ = false;
  Recording recording_;
};

}  // namespace vernier::cuda
