// A stable merge sort whose comparison may fail, as comparing a string with a number does.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.h"

namespace vernier::jinja {

/// Sorts by `less`, a function of two items that gives Result<bool>; the first error ends it.
template <class T, class Less>
[[nodiscard]] Status sort_checked(std::vector<T>& items, Less less) {
  std::vector<T> merged(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          VN_ASSIGN(take_right, less(items[right], items[left]));
        }
        merged[out] = std::move(take_right ? items[right++] : items[left++]);
      }
    }
    std::swap(items, merged);
  }
  return {};
}

}  // namespace vernier::jinja
