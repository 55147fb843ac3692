// A quicker way for records (packed_weight.h) that exist in no host memory yet: the bytes travel as they are stored,
// and the device lays them out in place.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/weight.h"

namespace vernier {

/// A backend that can do so. One thread drives it, as it does the backend.
class RecordPlacer {
 public:
  virtual ~RecordPlacer() = default;
  RecordPlacer() = default;
  RecordPlacer(const RecordPlacer&) = delete;
  RecordPlacer& operator=(const RecordPlacer&) = delete;

  /// A weight, or other bytes that go where they go as they are.
  struct Part {
    Weight staged;                   ///< as pack_as_stored() wrote it into staging memory
    const Weight* host = nullptr;    ///< the same weight where it lies for good; null: no weight
    std::span<const std::byte> raw;  ///< those bytes, in staging memory
    std::byte* record = nullptr;     ///< where it goes, in backend memory: room for record_bytes()
  };

  /// Host memory for the bytes of the next place(), aligned as records are. Waits for an earlier copy from it.
  [[nodiscard]] virtual Result<std::byte*> stage(std::size_t size_bytes) = 0;
  /// Enqueues, in the order of the backend's operations: `size_bytes` from the staging memory, and the layout of the
  /// parts, which lie within.
  [[nodiscard]] virtual Status place(std::span<const Part> parts, std::size_t size_bytes) = 0;
  /// Waits for the parts placed since the last call and returns the weights among them as they are in their records, in
  /// that order. They may move as pack()'s do.
  [[nodiscard]] virtual Result<std::vector<Weight>> finish() = 0;
};

}  // namespace vernier
