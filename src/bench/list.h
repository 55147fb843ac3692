// Lists on the command line: "a,b,c".
#pragma once

#include <string_view>
#include <vector>

namespace vernier::bench {

/// Cuts `text` at separators; empty parts stay and are refused by whoever reads them.
[[nodiscard]] inline std::vector<std::string_view> split_list(std::string_view text, char separator = ',') {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace vernier::bench
