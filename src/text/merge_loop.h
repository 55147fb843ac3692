// The loop that byte-pair encodings share: merge the best pair of neighbours, of equally good ones the leftmost, until
// none is left. O(n log n).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace vernier::text_internal {

/// What a pair without a merge costs.
inline constexpr std::uint32_t kNoMerge = 0xFFFFFFFF;

/// Reused between pieces.
struct MergeLoopScratch {
  struct Link {
    std::int32_t previous;  // -1: none
    std::int32_t next;      // -1: none
    std::uint32_t cost;     // of merging with the next one now; whatever the heap says otherwise is out of date
  };
  std::vector<Link> links;
  std::vector<std::uint64_t> heap;  // cost << 32 | left, smallest on top
};

/// Merges among `count` symbols. `cost` (left, right) is what merging two neighbours costs, lower is sooner; `merge`
/// (left, right) lets the symbol `left` take the place of both.
template <class Cost, class Merge>
void merge_all(std::size_t count, MergeLoopScratch& scratch, const Cost& cost, const Merge& merge) {
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto at = [&](std::int32_t i) -> MergeLoopScratch::Link& { return links[static_cast<std::size_t>(i)]; };
  const auto key = [](std::uint32_t pair_cost, std::int32_t left) {
    return std::uint64_t{pair_cost} << 32U | static_cast<std::uint32_t>(left);
  };
  const auto size = static_cast<std::int32_t>(count);
  links.resize(count);
  heap.clear();
  for (std::int32_t i = 0; i < size; ++i) {
    const bool last = i + 1 == size;
    at(i) = {i - 1, last ? -1 : i + 1, last ? kNoMerge : cost(i, i + 1)};
    if (at(i).cost != kNoMerge) heap.push_back(key(at(i).cost, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t best = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::int32_t>(best & 0xFFFFFFFF);
    if (at(left).cost != best >> 32U) continue;
    const std::int32_t right = at(left).next;
    merge(left, right);
    at(right).cost = kNoMerge;
    at(left).next = at(right).next;
    if (at(left).next >= 0) at(at(left).next).previous = left;
    for (const std::int32_t changed : {at(left).previous, left}) {
      if (changed < 0) continue;
      MergeLoopScratch::Link& link = at(changed);
      link.cost = link.next < 0 ? kNoMerge : cost(changed, link.next);
      if (link.cost == kNoMerge) continue;
      heap.push_back(key(link.cost, changed));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
}

}  // namespace vernier::text_internal
