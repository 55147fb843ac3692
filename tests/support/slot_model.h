// What ExpertSlots do with their slots, written as plainly as can be: an order of slots, from which everything follows.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "backend/expert_slots.h"

namespace vernier::test {

class SlotModel {
 public:
  explicit SlotModel(std::int32_t num_slots) {
    for (std::int32_t slot = 0; slot < num_slots; ++slot) order_.push_back({slot, -1, -1});
  }

  struct Admission {
    SlotExpert at;
    bool found = false;
  };
  /// Admits the chosen experts of a layer, at most as many as there are slots; those outside `experts` don't count.
  std::vector<Admission> admit(std::int32_t layer, std::span<const std::int32_t> ids, std::int32_t experts) {
    std::set<std::int32_t> chosen;
    for (const std::int32_t id : ids) {
      if (id >= 0 && id < experts) chosen.insert(id);
    }
    const auto is_chosen = [&](const SlotExpert& of) { return of.layer == layer && chosen.count(of.expert) > 0; };
    std::vector<Admission> admitted;
    auto victim = order_.begin();
    for (const std::int32_t expert : chosen) {
      auto at = std::find(order_.begin(), order_.end(), SlotExpert{slot_of(layer, expert), layer, expert});
      const bool found = at != order_.end();
      if (!found) at = victim = std::find_if_not(victim, order_.end(), is_chosen);
      *at = {at->slot, layer, expert};
      admitted.push_back({*at, found});
    }
    for (const Admission& admission : admitted) use(admission.at);
    return admitted;
  }
  /// The slot's expert is that from now on, and was used last.
  void use(const SlotExpert& what) {
    order_.erase(
        std::find_if(order_.begin(), order_.end(), [&](const SlotExpert& of) { return of.slot == what.slot; }));
    order_.push_back(what);
  }
  [[nodiscard]] std::int32_t slot_of(std::int32_t layer, std::int32_t expert) const {
    for (const SlotExpert& of : order_) {
      if (of.layer == layer && of.expert == expert) return of.slot;
    }
    return -1;
  }
  [[nodiscard]] const SlotExpert& next_victim() const { return order_.front(); }
  [[nodiscard]] std::vector<SlotExpert> residents() const {
    std::vector<SlotExpert> filled;
    for (const SlotExpert& of : order_) {
      if (of.layer >= 0) filled.push_back(of);
    }
    return filled;
  }

 private:
  std::vector<SlotExpert> order_;  ///< the one unused for longest first; layer -1: empty
};

}  // namespace vernier::test
