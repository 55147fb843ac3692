#include "placement/slot_cache.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace vernier {
namespace {

/// Slots in order of a time stamp: first the one to give up. With `renew`, use renews the stamp (LRU), else only
/// arrival sets it (FIFO). In front of them those whose experts only pass, in the order of their arrival.
class StampPolicy final : public EvictionPolicy {
 public:
  StampPolicy(std::int32_t num_slots, bool renew) : nodes_(static_cast<std::size_t>(num_slots) + 1), renew_(renew) {
    nodes_[0] = {0, 0};  // the ring's anchor; slot s is node s + 1
  }

  void insert(std::int32_t slot) override {
    const std::size_t node = take(slot);
    link_behind(nodes_[0].previous, node);
  }

  void insert_passing(std::int32_t slot) override {
    const std::size_t node = take(slot);
    link_behind(last_passing_, node);
    last_passing_ = node;
  }

  void touch(std::int32_t slot) override {
    if (renew_) insert(slot);
  }

  std::int32_t victim(const std::vector<bool>& pinned) const override {
    std::size_t node = nodes_[0].next;
    while (node != 0 && pinned[node - 1]) node = nodes_[node].next;
    return static_cast<std::int32_t>(node) - 1;
  }

 private:
  static constexpr std::size_t kOutside = static_cast<std::size_t>(-1);
  struct Node {
    std::size_t previous = kOutside;
    std::size_t next = kOutside;
  };

  /// The slot's node, out of the ring.
  std::size_t take(std::int32_t slot) {
    const auto at = static_cast<std::size_t>(slot) + 1;
    const Node node = nodes_[at];
    if (node.next == kOutside) return at;
    nodes_[node.previous].next = node.next;
    nodes_[node.next].previous = node.previous;
    if (at == last_passing_) last_passing_ = node.previous;
    return at;
  }
  void link_behind(std::size_t previous, std::size_t node) {
    const std::size_t next = nodes_[previous].next;
    nodes_[node] = {previous, next};
    nodes_[previous].next = node;
    nodes_[next].previous = node;
  }

  std::vector<Node> nodes_;
  std::size_t last_passing_ = 0;  ///< the node of the last one whose expert passes; the anchor: there are none
  bool renew_;
};

class FrequencyPolicy final : public EvictionPolicy {
 public:
  explicit FrequencyPolicy(std::int32_t num_slots) : uses_(static_cast<std::size_t>(num_slots)) {}

  void insert(std::int32_t slot) override { update(slot, 1); }
  void insert_passing(std::int32_t slot) override { update(slot, 0); }
  void touch(std::int32_t slot) override { update(slot, uses_[static_cast<std::size_t>(slot)].count + 1); }

  std::int32_t victim(const std::vector<bool>& pinned) const override {
    for (const auto& [count, stamp, slot] : order_) {
      if (!pinned[static_cast<std::size_t>(slot)]) return slot;
    }
    return -1;
  }

 private:
  struct Use {
    std::int64_t count = 0;
    std::int64_t stamp = 0;
  };

  void update(std::int32_t slot, std::int64_t count) {
    Use& use = uses_[static_cast<std::size_t>(slot)];
    order_.erase({use.count, use.stamp, slot});
    use = {count, ++clock_};
    order_.insert({use.count, use.stamp, slot});
  }

  std::vector<Use> uses_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int32_t>> order_;
  std::int64_t clock_ = 0;
};

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> create_eviction_policy(std::string_view name, std::int32_t num_slots) {
  if (name == "lru") return std::make_unique<StampPolicy>(num_slots, true);
  if (name == "fifo") return std::make_unique<StampPolicy>(num_slots, false);
  if (name == "lfu") return std::make_unique<FrequencyPolicy>(num_slots);
  return fail(ErrorCode::kInvalidArgument, "unknown cache policy '{}'; known: lru, fifo, lfu", escape(name));
}

SlotCache::SlotCache(std::int32_t num_layers, std::int32_t num_experts, std::int32_t num_slots,
                     std::unique_ptr<EvictionPolicy> policy)
    : num_experts_(static_cast<std::size_t>(num_experts)),
      slot_of_(static_cast<std::size_t>(num_layers) * num_experts_, -1),
      expert_of_(static_cast<std::size_t>(num_slots), -1),
      pinned_(static_cast<std::size_t>(num_slots), false),
      policy_(std::move(policy)) {}

std::optional<std::int32_t> SlotCache::find(std::int32_t layer, std::int32_t expert) const {
  const std::int32_t slot = slot_of_[index(layer, expert)];
  if (slot < 0) return std::nullopt;
  return slot;
}

void SlotCache::pin(std::int32_t slot) {
  if (pinned_[static_cast<std::size_t>(slot)]) return;
  pinned_[static_cast<std::size_t>(slot)] = true;
  ++num_pinned_;
}

SlotCache::Admission SlotCache::admit(std::int32_t layer, std::int32_t expert, Coming coming) {
  std::int32_t& slot = slot_of_[index(layer, expert)];
  if (slot >= 0) {
    policy_->touch(slot);
    pin(slot);
    return {slot, true};
  }
  std::int32_t given = num_filled_;
  if (num_filled_ < num_slots()) {
    ++num_filled_;
    coming = Coming::kToStay;  // it takes no other's slot
  } else {
    given = policy_->victim(pinned_);
    slot_of_[static_cast<std::size_t>(expert_of_[static_cast<std::size_t>(given)])] = -1;
  }
  slot = given;
  expert_of_[static_cast<std::size_t>(given)] = static_cast<std::int64_t>(index(layer, expert));
  if (coming == Coming::kToStay) {
    policy_->insert(given);
  } else {
    policy_->insert_passing(given);
  }
  pin(given);
  return {given, false};
}

void SlotCache::fill(std::int32_t slot, std::int32_t layer, std::int32_t expert) {
  slot_of_[index(layer, expert)] = slot;
  expert_of_[static_cast<std::size_t>(slot)] = static_cast<std::int64_t>(index(layer, expert));
  num_filled_ = std::max(num_filled_, slot + 1);
  policy_->insert(slot);
}

void SlotCache::unpin(std::int32_t slot) {
  if (!pinned_[static_cast<std::size_t>(slot)]) return;
  pinned_[static_cast<std::size_t>(slot)] = false;
  --num_pinned_;
}

}  // namespace vernier
