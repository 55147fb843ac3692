// Copies to a device beside its work: what moves experts while others compute.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace vernier {

/// A queue of copies beside a backend's queue of operations; fences order the two. Driven by the backend's thread.
class CopyLane {
 public:
  virtual ~CopyLane() = default;
  CopyLane() = default;
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;

  /// Enqueues a copy. `host` (from Backend::allocate_host() where the copy shall run beside work) must stay as it is
  /// until the copy is done: at the latest when the backend is synchronised after lead_compute().
  [[nodiscard]] virtual Status copy(void* device, const void* host, std::size_t size_bytes) = 0;
  /// Copies from here on begin when the operations called so far have ended.
  [[nodiscard]] virtual Status follow_compute() = 0;
  /// Operations from here on begin when the copies enqueued so far have ended.
  [[nodiscard]] virtual Status lead_compute() = 0;
  /// Bytes a second of recent copies as measured; 0 while unknown.
  [[nodiscard]] virtual double bytes_per_second() = 0;
};

}  // namespace vernier
