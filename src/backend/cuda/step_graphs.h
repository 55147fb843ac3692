// Decode steps as CUDA graphs. A step of as many sequences as one before it enqueues the same kernels with the same
// arguments: what differs (tokens, positions, pages) lies in tables that are uploaded beforehand. So it is captured
// once and launched as a whole from then on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/host_detours.h"

namespace vernier::cuda {

class StepGraphs {
 public:
  StepGraphs() = default;
  ~StepGraphs() { clear(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  /// Runs the step: the first of its kind through `work`, so that working memory finds its size, the second captured,
  /// later ones launched. A step that can't be captured runs through `work` always.
  /// What the host does in the middle of a step, through `detours`, it does again each time.
  [[nodiscard]] Status run(CudaContext& context, HostDetours& detours, const RepeatableStep& step,
                           const std::function<Status()>& work);
  /// Nodes of the graph that run() launched last; 0: it launched none.
  [[nodiscard]] std::int64_t last_launches() const { return last_launches_; }

 private:
  /// Kernels and their grids depend on these alone.
  struct Key {
    std::uint64_t owner = 0;
    std::size_t num_sequences = 0;
    std::int32_t num_splits = 0;
    bool overlap = true;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    cudaGraphExec_t graph = nullptr;
    HostDetours::Recording detours = {};
    std::int64_t launches = 0;
    bool unfit = false;
  };
  /// Numbers of sequences and split counts come and go; graphs take memory.
  static constexpr std::size_t kMostEntries = 64;

  [[nodiscard]] Status capture(const CudaContext& context, HostDetours& detours, const std::function<Status()>& work,
                               Entry& entry);
  void clear();

  std::vector<Entry> entries_;
  std::int64_t last_launches_ = 0;
  std::uint64_t generation_ = 0;  ///< of the memory that the graphs point into
};

}  // namespace vernier::cuda
