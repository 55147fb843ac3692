// All experts of a model as records in host memory: everything that one expert needs on the device (codes, scales,
// biases of gate, up and down), in one piece that one copy moves. Sizes and addresses only, never formats.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace vernier {

class ExpertRecords {
 public:
  explicit ExpertRecords(Backend& device) : device_(device) {}

  /// Packs a layer's experts. kInternal when the layer has its bank already.
  [[nodiscard]] Status add(std::int32_t layer, const ExpertWeights& bank);
  /// Bytes of the largest record: what a slot must hold.
  [[nodiscard]] std::uint64_t largest_record() const { return largest_record_; }
  [[nodiscard]] std::int64_t num_records() const { return num_records_; }
  [[nodiscard]] std::int32_t num_layers() const { return static_cast<std::int32_t>(banks_.size()); }
  /// The most experts that a layer has.
  [[nodiscard]] std::int32_t num_experts() const { return num_experts_; }

  struct Record {
    const std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
  };
  [[nodiscard]] Record record(std::int32_t layer, std::int32_t expert) const;
  /// Appends the expert to `to` as it is once its record lies at `slot`.
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
  };

  [[nodiscard]] Result<Expert> pack(const ExpertWeights& bank, std::size_t expert, std::byte* to);

  Backend& device_;
  std::vector<Bank> banks_;  ///< [layers]; layers without experts are empty
  std::uint64_t largest_record_ = 0;
  std::int64_t num_records_ = 0;
  std::int32_t num_experts_ = 0;
};

}  // namespace vernier
