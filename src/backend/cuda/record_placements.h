// Weights that come from a file into slots: stored bytes go to the GPU through two staging halves, on a stream of their
// own, and are packed there into the slots. While one half is packed the other is copied and filled again.
#pragma once

#include <array>
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

  [[nodiscard]] Result<std::byte*> stage(std::size_t size_bytes);
  [[nodiscard]] Status place(std::span<const RecordPlacer::Part> parts, std::size_t size_bytes);
  [[nodiscard]] Result<std::vector<Weight>> finish();

 private:
  struct Half {
    Buffer memory;
    Buffer published;              ///< the same bytes in device memory
    cudaEvent_t copied = nullptr;  ///< behind the last copy from it
    cudaEvent_t packed = nullptr;  ///< behind what read the copy
  };
  static constexpr std::size_t kMostReports = 4096;

  [[nodiscard]] Status prepare();
  /// Waits for the parts under way and moves them to done_.
  [[nodiscard]] Status complete();

  CudaContext& context_;
  CopyMemory& memory_;
  cudaStream_t copies_ = nullptr;
  std::array<Half, 2> halves_;
  std::size_t half_ = 0;
  Buffer reports_;       ///< [kMostReports] in device memory
  Buffer blank_;         ///< the same, as reports begin
  Buffer host_reports_;  ///< the same on the host
  std::vector<RecordUnderWay> under_way_;
  std::vector<Weight> done_;
};

}  // namespace vernier::cuda
