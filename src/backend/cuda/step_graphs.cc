#include "backend/cuda/step_graphs.h"

#include <algorithm>

#include "backend/cuda/launch_mode.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {

Status StepGraphs::run(CudaContext& context, HostDetours& detours, const RepeatableStep& step,
                       const std::function<Status()>& work) {
  const LaunchMode mode(step.overlap);
  last_launches_ = 0;
  // In place before the graph runs; operations inside it find the contents unchanged and copy nothing.
  VN_TRY(context.tables.step(step.slices, static_cast<std::int64_t>(step.tokens.size())).map([](const StepView&) {}));
  VN_TRY(context.tables.tokens(step.tokens).map([](const std::int32_t*) {}));
  const std::uint64_t generation = context.scratch.generation() + context.tables.generation();
  if (generation != generation_ || entries_.size() > kMostEntries) {
    VN_CUDA(cudaStreamSynchronize(context.stream));
    clear();
    generation_ = generation;
  }
  const Key key{step.owner, step.slices.size(), attention_splits(step.slices), step.overlap};
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {
    entries_.push_back({key});
    return work();
  }
  if (found->unfit) return work();
  if (found->graph == nullptr) VN_TRY(capture(context, detours, work, *found));
  if (found->graph == nullptr) return work();
  last_launches_ = found->launches;
  return detours.serve(found->detours,
                       [&] { return cuda_status(cudaGraphLaunch(found->graph, context.stream), "cudaGraphLaunch"); });
}

/// Leaves entry.graph null, and the entry marked, where the work can't be captured: nothing has run then.
Status StepGraphs::capture(const CudaContext& context, HostDetours& detours, const std::function<Status()>& work,
                           Entry& entry) {
  VN_CUDA(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  detours.begin_recording();
  const Status enqueued = work();
  entry.detours = detours.end_recording();
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(context.stream, &graph);
  if (enqueued && error == cudaSuccess) error = cudaGraphInstantiate(&entry.graph, graph, 0);
  std::size_t nodes = 0;
  if (graph != nullptr && cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess) {
    entry.launches = static_cast<std::int64_t>(nodes);
  }
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (!enqueued || error != cudaSuccess) {
    (void)cudaGetLastError();
    entry.graph = nullptr;
    entry.unfit = true;
  }
  return {};
}

void StepGraphs::clear() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) (void)cudaGraphExecDestroy(entry.graph);
  }
  entries_.clear();
}

}  // namespace vernier::cuda
