// The tokens of a model by id and by text, with the limits that hold for any source.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/hash.h"

namespace vernier::text_internal {

using TokenId = std::int32_t;

class Vocabulary {
 public:
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 22U;
  static constexpr std::size_t kMaxTokenBytes = std::size_t{64} << 10U;

  struct Entry {
    std::string text;
    bool exists = false;    // false: a hole, an id without a token
    bool in_model = false;  // the model may produce it from text (added tokens outside the model aren't)
    bool special = false;   // left out by skip_special
  };

  /// Checks sizes and builds the indices. Where two tokens have the same text, the first one is found by it.
  static Result<Vocabulary> build(std::vector<Entry> entries);

  [[nodiscard]] std::size_t size() const { return texts_.size(); }
  [[nodiscard]] bool exists(TokenId id) const { return has_flag(id, kExists); }
  [[nodiscard]] bool in_model(TokenId id) const { return has_flag(id, kInModel); }
  [[nodiscard]] bool special(TokenId id) const { return has_flag(id, kSpecial); }
  [[nodiscard]] std::string_view text(TokenId id) const {
    return exists(id) ? std::string_view(texts_[static_cast<std::size_t>(id)]) : std::string_view();
  }
  /// By text, among all tokens.
  [[nodiscard]] std::optional<TokenId> find(std::string_view text) const;
  /// By text, among the model's own.
  [[nodiscard]] std::optional<TokenId> find_in_model(std::string_view text) const;
  [[nodiscard]] std::optional<TokenId> find_in_model(char32_t c) const;
  /// The ids of "<0x00>" to "<0xFF>", -1 where there is none.
  [[nodiscard]] const std::array<TokenId, 256>& byte_ids() const { return byte_ids_; }
  /// Bytes of the longest text in the model.
  [[nodiscard]] std::size_t longest_in_model() const { return longest_in_model_; }

 private:
  static constexpr std::uint8_t kExists = 1;
  static constexpr std::uint8_t kInModel = 2;
  static constexpr std::uint8_t kSpecial = 4;

  [[nodiscard]] bool has_flag(TokenId id, std::uint8_t flag) const {
    return id >= 0 && static_cast<std::size_t>(id) < flags_.size() &&
           (flags_[static_cast<std::size_t>(id)] & flag) != 0;
  }

  std::vector<std::string> texts_;
  std::vector<std::uint8_t> flags_;
  TextIndex model_index_;
  TextIndex outside_index_;              // tokens that aren't the model's
  std::array<TokenId, 0x250> char_ids_;  // model tokens of one low character: nearly all that byte-level models need
  std::array<TokenId, 256> byte_ids_;
  std::size_t longest_in_model_ = 0;
};

/// The value of a byte token's text "<0xXX>" (exactly two upper-case hexadecimal digits), or nothing.
[[nodiscard]] std::optional<std::uint8_t> parse_byte_token(std::string_view text);

}  // namespace vernier::text_internal
