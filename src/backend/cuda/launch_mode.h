// Whether kernels are launched as dependents of the one in front (predecessor.cuh).
#pragma once

namespace vernier::cuda {

/// Of the kernels that this thread launches. False only while a step asks for it (RepeatableStep::overlap).
inline thread_local bool launches_overlap = true;

class LaunchMode {
 public:
  explicit LaunchMode(bool overlap) { launches_overlap = overlap; }
  ~LaunchMode() { launches_overlap = true; }
  LaunchMode(const LaunchMode&) = delete;
  LaunchMode& operator=(const LaunchMode&) = delete;
};

}  // namespace vernier::cuda
