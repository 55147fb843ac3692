// A quicker way for records (packed_weight.h) that exist in no host memory yet: the bytes travel as they are stored,
// and the device lays them out in place. They go in parcels, several of which may be on their way at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/memory.h"
#include "base/result.h"
#include "tensor/weight.h"

namespace vernier {

/// A backend that can do so. One thread drives it, as it does the backend. Parcels are numbered from 0; each takes as
/// much memory of host and device as the largest that had its number.
class RecordPlacer {
 public:
  virtual ~RecordPlacer() = default;
  RecordPlacer() = default;
  RecordPlacer(const RecordPlacer&) = delete;
  RecordPlacer& operator=(const RecordPlacer&) = delete;

  /// Bytes of a parcel.
  struct Run {
    std::span<const std::byte> bytes;   ///< where they lie for good, by which parts name them
    const std::byte* source = nullptr;  ///< where the device reads them: in staged or page-locked memory
  };
  /// A weight, or other bytes that go where they go as they are. What it is made of lies within the parcel's runs.
  struct Part {
    const Weight* host = nullptr;    ///< the weight where it lies for good; null: no weight
    const Weight* known = nullptr;   ///< the same as finish() returned it once; null: finish() shall
    std::span<const std::byte> raw;  ///< those other bytes
    std::byte* record = nullptr;     ///< where it goes, in backend memory: room for record_bytes()
  };

  /// Page-locks memory that lies there already, so that the device may read it; released with the result, which
  /// waits for what reads it. No page may be locked twice. kOutOfMemory where the system refuses.
  [[nodiscard]] virtual Result<Buffer> lock(std::span<const std::byte> bytes) = 0;
  /// Host memory of a parcel, aligned as records are, for bytes that it is to have. Waits for an earlier copy from it.
  [[nodiscard]] virtual Result<std::byte*> stage(std::int32_t parcel, std::size_t size_bytes) = 0;
  /// Enqueues copies of a parcel's bytes to the device, beside its operations, behind what reads the parcel that had
  /// the number before. `runs` are in the order of their addresses.
  [[nodiscard]] virtual Status send(std::int32_t parcel, std::span<const Run> runs) = 0;
  /// Enqueues, in the order of the backend's operations, the layout of parts from a parcel that was sent. May be called
  /// several times, or never.
  [[nodiscard]] virtual Status place(std::int32_t parcel, std::span<const Part> parts) = 0;
  /// Waits for the parts placed since the last call, if some weight among them wasn't known, and returns those weights
  /// as they are in their records, in that order. They may move as pack()'s do.
  [[nodiscard]] virtual Result<std::vector<Weight>> finish() = 0;
  /// Bytes a second that a parcel's copies reached lately; 0 while unknown.
  [[nodiscard]] virtual double bytes_per_second() = 0;
};

}  // namespace vernier
