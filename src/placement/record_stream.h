// Experts on their way from the mapped file to a device that lays records out (backend/record_placer.h): what of the
// file goes in which parcel, read by the device itself where memory is page-locked, else gathered by all threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/record_placer.h"
#include "base/thread_pool.h"

namespace vernier {

/// A part of an expert.
struct RecordPart {
  std::size_t which = 0;           ///< gate, up, down, 3: their biases
  const Weight* weight = nullptr;  ///< null: a bias
  std::span<const float> bias;
  std::uint64_t at = 0;  ///< where it begins in the expert's record
};
/// The parts of an expert in the order of its record: gate, up, down, and what biases it has.
[[nodiscard]] std::vector<RecordPart> parts_of(const Backend& device, const ExpertWeights& bank, std::size_t expert);

class RecordStream {
 public:
  struct Options {
    int num_threads = 0;            ///< that gather, 0: all
    std::uint64_t ahead_bytes = 0;  ///< of the device's memory for parcels
  };
  RecordStream(Backend& device, RecordPlacer& placer, const Options& options)
      : device_(device), placer_(placer), options_(options) {}

  /// Says how large records are. Before anything is sent.
  void set_record_bytes(std::uint64_t largest);
  /// Page-locks the memory that the banks' weights lie in, all of it or nothing: afterwards the device reads it without
  /// anybody's help. They must live as long as this does.
  void lock(std::span<const ExpertWeights* const> banks, std::uint64_t most_bytes);
  [[nodiscard]] bool is_locked() const { return !locks_.empty(); }

  struct Arrival {
    std::int32_t expert = 0;
    std::byte* slot = nullptr;                ///< in device memory
    std::array<const Weight*, 3> known = {};  ///< gate, up and down as finish() returned them once, or null
  };
  /// Brings experts of a layer into slots in the order of the device's operations, and returns them in the order in
  /// which finish() will have their weights. `bank` outlives the next finish().
  [[nodiscard]] Result<std::vector<Arrival>> place(std::int32_t layer, const ExpertWeights& bank,
                                                   std::span<const Arrival> arrivals);
  /// Sends experts that a layer may need next, as many as there is room for. Those sent so before and not placed are
  /// forgotten.
  [[nodiscard]] Status send_ahead(std::int32_t layer, const ExpertWeights& bank, std::span<const std::int32_t> experts);
  [[nodiscard]] Result<std::vector<Weight>> finish() { return placer_.finish(); }
  [[nodiscard]] double bytes_per_second() { return placer_.bytes_per_second(); }

 private:
  /// Experts that were sent together.
  struct Parcel {
    std::int32_t number = -1;
    std::int32_t layer = -1;
    std::vector<std::int32_t> experts;  ///< that haven't been placed
  };

  [[nodiscard]] Status send(const Parcel& parcel, const ExpertWeights& bank);
  [[nodiscard]] Status place_from(Parcel& parcel, const ExpertWeights& bank, std::span<const Arrival> arrivals,
                                  std::vector<Arrival>& order);
  void gather(std::span<RecordPlacer::Run> runs, std::byte* memory);
  [[nodiscard]] std::int32_t free_number();
  void keep_ahead(std::int32_t layer);

  Backend& device_;
  RecordPlacer& placer_;
  Options options_;
  std::int64_t parcel_experts_ = 1;
  std::int32_t num_parcels_ = 2;
  std::int32_t last_number_ = -1;
  std::vector<Parcel> ahead_;
  std::unique_ptr<ThreadPool> gatherers_;  ///< made when first needed
  std::vector<Buffer> locks_;
};

}  // namespace vernier
