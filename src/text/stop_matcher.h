// Finds stop strings in streamed text, also when they lie across the borders of tokens. Knows no tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vernier {

/// The state of one stream. Feed text, send on what comes back; text that may be the beginning of a stop string is held
/// back. Linear in the text for a fixed set of stop strings.
class StopMatcher {
 public:
  struct Output {
    std::string text;                 ///< safe to emit; never contains any part of the stop string that was hit
    std::optional<std::size_t> stop;  ///< index of the stop string that was hit; feed nothing more then
  };

  /// Empty stop strings are ignored. With include_stop the stop string itself is emitted too.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  /// Of several stop strings the one that is complete first wins, and of those the one that begins first.
  [[nodiscard]] Output push(std::string_view text);
  /// The text held back, when the stream ends without a hit.
  [[nodiscard]] std::string finish();

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::vector<std::vector<std::size_t>> borders_;  // failure function of each stop string
  std::vector<std::size_t> matched_;               // length of the prefix of each stop string that ends the text
  std::string held_;
};

}  // namespace vernier
