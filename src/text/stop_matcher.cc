// One Knuth-Morris-Pratt automaton a stop string, all fed byte by byte.
#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace vernier {
namespace {

/// For each prefix, the length of its longest proper prefix that is also its suffix.
std::vector<std::size_t> failure_function(std::string_view text) {
  std::vector<std::size_t> borders(text.size(), 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::size_t length = borders[i - 1];
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    borders[i] = text[i] == text[length] ? length + 1 : 0;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop), matched_(stops_.size(), 0) {
  for (const std::string& stop : stops_) borders_.push_back(failure_function(stop));
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  for (const char c : text) {
    held_ += c;
    std::optional<std::size_t> hit;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      const std::string& stop = stops_[i];
      if (stop.empty()) continue;
      std::size_t& length = matched_[i];
      while (length > 0 && stop[length] != c) length = borders_[i][length - 1];
      if (stop[length] == c) ++length;
      if (length < stop.size()) continue;
      if (!hit || stop.size() > stops_[*hit].size()) hit = i;
    }
    if (hit) {
      std::string out = std::exchange(held_, {});
      if (!include_stop_) out.resize(out.size() - stops_[*hit].size());
      std::ranges::fill(matched_, 0);
      return {std::move(out), hit};
    }
  }
  const std::size_t keep = matched_.empty() ? 0 : *std::ranges::max_element(matched_);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return {std::move(out), std::nullopt};
}

std::string StopMatcher::finish() {
  std::ranges::fill(matched_, 0);
  return std::exchange(held_, {});
}

}  // namespace vernier
