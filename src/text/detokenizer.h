// Ids to text one at a time, for streaming: what push() and finish() return joins to what Tokenizer::decode() gives for
// the same ids, and every piece is well-formed UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace vernier {

namespace text_internal {
struct DecodeState;
}  // namespace text_internal

/// The state of one stream. Not for several threads at once; any number may share a tokenizer.
class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;

  /// Takes the next id and returns the text that is now certain, possibly empty: an incomplete character at the end is
  /// held back (at most 3 bytes) until a later token completes it or shows that it can't be completed.
  [[nodiscard]] std::string push(std::int32_t id);
  /// The held-back rest: U+FFFD when a character was left incomplete, else empty. A new stream begins afterwards.
  [[nodiscard]] std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::unique_ptr<text_internal::DecodeState> state_;
};

}  // namespace vernier
