// Which expert lies in which slot of a device's expert memory, and which one leaves when another comes. Bookkeeping
// alone: it moves no bytes and knows no device, so that a recorded routing trace can be replayed against it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vernier {

/// Decides which slot is given up. Slots are numbered from 0. Every call is O(log slots) or better.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  EvictionPolicy() = default;
  EvictionPolicy(const EvictionPolicy&) = delete;
  EvictionPolicy& operator=(const EvictionPolicy&) = delete;

  /// The slot got a new expert.
  virtual void insert(std::int32_t slot) = 0;
  /// The slot got a new expert of which no use is expected soon: it leaves before the others do, after those that came
  /// in this way before it.
  virtual void insert_passing(std::int32_t slot) = 0;
  /// The slot's expert was used again.
  virtual void touch(std::int32_t slot) = 0;
  /// A filled slot for which pinned[slot] is false; at least one must exist.
  [[nodiscard]] virtual std::int32_t victim(const std::vector<bool>& pinned) const = 0;
};

/// "lru": the one unused for longest. "fifo": the one that came first. "lfu": the one used least since it came, the
/// older use first. Unknown names list the known ones.
[[nodiscard]] Result<std::unique_ptr<EvictionPolicy>> create_eviction_policy(std::string_view name,
                                                                             std::int32_t num_slots);

class SlotCache {
 public:
  /// `num_slots` >= 1. The policy must be for as many slots.
  SlotCache(std::int32_t num_layers, std::int32_t num_experts, std::int32_t num_slots,
            std::unique_ptr<EvictionPolicy> policy);

  [[nodiscard]] std::int32_t num_slots() const { return static_cast<std::int32_t>(expert_of_.size()); }
  /// The slot of an expert, if it has one.
  [[nodiscard]] std::optional<std::int32_t> find(std::int32_t layer, std::int32_t expert) const;

  struct Admission {
    std::int32_t slot = 0;
    bool hit = false;  ///< false: the expert's bytes must be copied into the slot
  };
  /// How an expert comes that had no slot: to stay, or, where no slot is empty, only to pass. Those that pass take each
  /// other's slots first.
  enum class Coming { kToStay, kPassing };
  /// Gives the expert a slot, another's if need be, and pins it: a pinned slot keeps its expert until unpin(). No more
  /// than num_slots() experts can be pinned at a time.
  Admission admit(std::int32_t layer, std::int32_t expert, Coming coming = Coming::kToStay);
  /// Fills an empty slot with an expert that is in none, as the one used last. Slots must be filled from 0 on, in
  /// any order, before anything is admitted.
  void fill(std::int32_t slot, std::int32_t layer, std::int32_t expert);
  [[nodiscard]] std::int32_t num_pinned() const { return num_pinned_; }
  void unpin(std::int32_t slot);

 private:
  [[nodiscard]] std::size_t index(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(layer) * num_experts_ + static_cast<std::size_t>(expert);
  }
  void pin(std::int32_t slot);

  std::size_t num_experts_;
  std::vector<std::int32_t> slot_of_;    ///< [layers, experts], -1: none
  std::vector<std::int64_t> expert_of_;  ///< [slots], index into slot_of_, -1: empty
  std::vector<bool> pinned_;             ///< [slots]
  std::int32_t num_filled_ = 0;
  std::int32_t num_pinned_ = 0;
  std::unique_ptr<EvictionPolicy> policy_;
};

}  // namespace vernier
