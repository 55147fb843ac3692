// Weights that come from a file into slots: stored bytes go to the GPU in parcels, on a stream of their own, and are
// packed there into the slots. While one parcel is packed others are copied and filled again.
#pragma once

#include <memory>

#include "backend/copy_memory.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/record.h"
#include "backend/record_placer.h"

namespace vernier::cuda {

class RecordPlacements {
 public:
  RecordPlacements(CudaContext& context, CopyMemory& memory) : context_(context), memory_(memory) {}
  ~RecordPlacements();
  RecordPlacements(const RecordPlacements&) = delete;
  RecordPlacements& operator=(const RecordPlacements&) = delete;

  [[nodiscard]] Result<std::byte*> stage(std::int32_t parcel, std::size_t size_bytes);
  [[nodiscard]] Status send(std::int32_t parcel, std::span<const RecordPlacer::Run> runs);
  [[nodiscard]] Status place(std::int32_t parcel, std::span<const RecordPlacer::Part> parts);
  [[nodiscard]] Result<std::vector<Weight>> finish();
  [[nodiscard]] double bytes_per_second() const { return bytes_per_second_; }

 private:
  /// Where a run's bytes lie in device memory.
  struct Arrived {
    std::span<const std::byte> bytes;
    std::byte* published = nullptr;
  };
  struct Parcel {
    Buffer memory;                 ///< staged bytes
    Buffer published;              ///< the parcel in device memory
    std::vector<Arrived> arrived;  ///< in the order of their addresses
    std::uint64_t size = 0;        ///< copied lately
    cudaEvent_t begun = nullptr;   ///< before the copies, after what they wait for
    cudaEvent_t copied = nullptr;  ///< behind the last copy
    cudaEvent_t packed = nullptr;  ///< behind what read the copies
  };
  static constexpr std::size_t kMostReports = 4096;

  [[nodiscard]] Status prepare();
  [[nodiscard]] Result<Parcel*> parcel(std::int32_t number);
  [[nodiscard]] Status copy(Parcel& parcel, std::span<const RecordPlacer::Run> runs);
  [[nodiscard]] Status begin(const RecordPlacer::Part& part, const Parcel& parcel);
  /// Waits for the parts under way and moves them to done_.
  [[nodiscard]] Status complete();

  CudaContext& context_;
  CopyMemory& memory_;
  cudaStream_t copies_ = nullptr;
  std::vector<std::unique_ptr<Parcel>> parcels_;
  Buffer reports_;       ///< [kMostReports + 1] in device memory; nobody reads the last
  Buffer blank_;         ///< [kMostReports] as reports begin
  Buffer host_reports_;  ///< the same on the host
  std::vector<RecordUnderWay> under_way_;
  std::vector<Weight> done_;
  double bytes_per_second_ = 0.0;
};

}  // namespace vernier::cuda
