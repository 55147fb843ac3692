// Slots for experts that a device fills by itself: it looks up which of the chosen experts lie in slots, copies the
// others from their records in host memory over those that were unused for longest, and computes, all without a word
// from the host. Beside it the host may fill the same slots its own way.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace vernier {

/// An expert in a slot.
struct SlotExpert {
  std::int32_t slot = 0;
  std::int32_t layer = 0;
  std::int32_t expert = 0;
  friend bool operator==(const SlotExpert&, const SlotExpert&) = default;
};

/// Driven by the backend's thread.
class ExpertSlots {
 public:
  virtual ~ExpertSlots() = default;
  ExpertSlots() = default;
  ExpertSlots(const ExpertSlots&) = delete;
  ExpertSlots& operator=(const ExpertSlots&) = delete;

  /// As Backend::expert_mlp(), of all experts of a layer; args.experts only says how large they are. May be part of a
  /// repeated step (Backend::run_step). The step may choose no more experts than there are slots. Uses count as rising
  /// by expert: of those in one step, the highest was used last.
  [[nodiscard]] virtual Status expert_mlp(std::int32_t layer, const ExpertMlpArgs& args) = 0;

  /// A 32-bit number in the device's memory that changes each time expert_mlp() runs.
  [[nodiscard]] virtual void* turn() const = 0;
  /// What lies in slots, the one unused for longest first, when all operations have ended. Empty slots are the last
  /// ones by number.
  [[nodiscard]] virtual Result<std::vector<SlotExpert>> residents() = 0;
  /// Says that the host has used these in this order, and has enqueued that they be in their slots if they weren't.
  /// Each slot at most once.
  [[nodiscard]] virtual Status record_uses(std::span<const SlotExpert> uses) = 0;

  struct Counters {
    std::int64_t found = 0;
    std::int64_t moved = 0;
    std::uint64_t moved_bytes = 0;
    double bytes_per_second = 0.0;  ///< of the latest moves; 0: unknown
  };
  /// Of expert_mlp(), when all operations have ended.
  [[nodiscard]] virtual Result<Counters> counters() = 0;
};

/// What the slots are for.
struct ExpertSlotsSetup {
  struct Record {
    const std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
  };
  struct Bank {
    ExpertWeights experts;  ///< as they lie in their records
    std::vector<Record> records;
  };
  std::span<const Bank> banks;  ///< [layers]; layers without experts are empty
  std::byte* slots =
      nullptr;  ///< [num_slots, slot_bytes] in the device's memory, empty. It outlives what is made of it
  std::uint64_t slot_bytes = 0;
  std::int32_t num_slots = 0;
};

/// A backend that can do so.
class ExpertSlotDevice {
 public:
  virtual ~ExpertSlotDevice() = default;
  ExpertSlotDevice() = default;
  ExpertSlotDevice(const ExpertSlotDevice&) = delete;
  ExpertSlotDevice& operator=(const ExpertSlotDevice&) = delete;

  /// Null where the device can't read the records' memory, or has no room for the books. Must not outlive the backend,
  /// nor the records.
  [[nodiscard]] virtual Result<std::unique_ptr<ExpertSlots>> create_expert_slots(const ExpertSlotsSetup& setup) = 0;
};

}  // namespace vernier
