// All experts of a model as records in host memory: everything that one expert needs on the device (codes, scales,
// biases of gate, up and down), in one piece that one copy moves. Sizes and addresses only, never formats. Records are
// made once and kept, or made anew from the mapped file each time one is wanted.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/expert_slots.h"
#include "placement/record_stream.h"

namespace vernier {

enum class ExpertStore : std::uint8_t {
  kMemory,  ///< a copy of all experts in the device's layout, page-locked where the system allows
  kFile,    ///< only what is being copied; the system's page cache holds of the file what memory allows
};

class ExpertRecords {
 public:
  /// `options` are for kFile. Where they let experts come ahead, weights are remembered: prompts only, whose layers
  /// come in order, as nobody waits for the device then.
  ExpertRecords(Backend& device, ExpertStore store, const RecordStream::Options& options);

  /// Takes a layer's experts in: packs them, or with kFile just adds up their sizes. kInternal when the layer has its
  /// bank already.
  [[nodiscard]] Status add(std::int32_t layer, const ExpertWeights& bank);
  /// Bytes of the largest record: what a slot must hold.
  [[nodiscard]] std::uint64_t largest_record() const { return largest_record_; }
  [[nodiscard]] std::uint64_t record_size(std::int32_t layer, std::int32_t expert) const {
    return banks_[static_cast<std::size_t>(layer)].experts[static_cast<std::size_t>(expert)].record.size_bytes;
  }
  [[nodiscard]] std::int64_t num_records() const { return num_records_; }
  [[nodiscard]] std::int32_t num_layers() const { return static_cast<std::int32_t>(banks_.size()); }
  [[nodiscard]] std::int32_t num_experts(std::int32_t layer) const {
    return static_cast<std::int32_t>(banks_[static_cast<std::size_t>(layer)].experts.size());
  }
  /// The most experts that a layer has.
  [[nodiscard]] std::int32_t num_experts() const { return num_experts_; }

  struct Record {
    const std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
  };
  /// With kFile: room for `count` records on their way, after all banks were added.
  [[nodiscard]] Status reserve_staging(std::int64_t count);
  /// True when fetch() has no room before release_staged().
  [[nodiscard]] bool staging_is_full() const { return store_ == ExpertStore::kFile && staged_ == num_staging_; }
  /// Forgets the records that were fetched: all copies from them have ended.
  void release_staged() { staged_ = 0; }
  /// Where the device lays records out by itself: place() is the way then, else fetch() and a copy.
  [[nodiscard]] bool places() const { return stream_ != nullptr; }
  /// After all banks were added, where places(): page-locks at most so many bytes that the experts' weights lie in, all
  /// of them or none, if experts may come ahead.
  [[nodiscard]] Status prepare_stream(std::uint64_t most_locked);
  struct Arrival {
    std::int32_t expert = 0;
    std::byte* slot = nullptr;  ///< in device memory
  };
  /// Bytes a second that place() managed lately; 0 while unknown.
  [[nodiscard]] double bytes_per_second() { return streams_ ? stream_->bytes_per_second() : bytes_per_second_; }
  /// Brings experts of a layer into slots, in the order of the device's operations. Slots may be filled later than this
  /// returns, but before operations that are called from then on.
  [[nodiscard]] Status place(std::int32_t layer, const ExpertWeights& bank, std::span<const Arrival> arrivals);
  /// Begins to bring experts that place() will probably be asked for next.
  [[nodiscard]] Status send_ahead(std::int32_t layer, std::span<const std::int32_t> experts);
  /// The bytes to copy. `bank` is the layer's, which kFile reads.
  [[nodiscard]] Result<Record> fetch(std::int32_t layer, std::int32_t expert, const ExpertWeights& bank);
  /// With kMemory: all records of a layer, and the experts as they lie there.
  [[nodiscard]] ExpertSlotsSetup::Bank at_home(std::int32_t layer) const;
  /// Appends the expert, which was fetched at some time, to `to` as it is once its record lies at `slot`.
  void append_at(std::int32_t layer, std::int32_t expert, const std::byte* slot, ExpertWeights& to) const;

 private:
  /// An expert's parts as they lie in its record.
  struct Expert {
    Record record;
    Weight gate, up, down;
    std::span<const float> gate_bias, up_bias, down_bias;
  };
  struct Bank {
    Buffer memory;
    std::vector<Expert> experts;
    ExpertWeights weights;  ///< with experts that come ahead: where they lie for good
  };

  void take(const ExpertWeights& bank, const RecordStream::Arrival& arrival, std::span<const Weight> placed,
            Expert& expert) const;
  [[nodiscard]] Result<Expert> pack(const ExpertWeights& bank, std::size_t expert, std::byte* to);

  Backend& device_;
  ExpertStore store_;
  bool streams_;  ///< experts may come ahead
  double bytes_per_second_ = 0.0;
  Buffer staging_;
  std::int64_t num_staging_ = 0;
  std::int64_t staged_ = 0;
  std::vector<Bank> banks_;  ///< [layers]; layers without experts are empty
  std::uint64_t largest_record_ = 0;
  std::int64_t num_records_ = 0;
  std::int32_t num_experts_ = 0;
  std::unique_ptr<RecordStream> stream_;  ///< behind the banks, whose memory it may have locked
};

}  // namespace vernier
