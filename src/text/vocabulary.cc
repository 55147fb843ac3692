// Building the indices of a vocabulary.
#include "text/vocabulary.h"

#include <algorithm>

#include "base/utf8.h"

namespace vernier::text_internal {

Result<Vocabulary> Vocabulary::build(std::vector<Entry> entries) {
  if (entries.size() > kMaxTokens) {
    return fail(ErrorCode::kUnsupported, "vocabulary of {} tokens, more than {}", entries.size(), kMaxTokens);
  }
  const auto in_model = static_cast<std::size_t>(std::ranges::count(entries, true, &Entry::in_model));
  Vocabulary vocabulary;
  vocabulary.model_index_ = TextIndex(in_model);
  vocabulary.outside_index_ = TextIndex(entries.size() - in_model);
  vocabulary.texts_.resize(entries.size());
  vocabulary.flags_.resize(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    if (!entry.exists) continue;
    if (entry.text.size() > kMaxTokenBytes) {
      return fail(ErrorCode::kUnsupported, "token {} has {} bytes, more than {}", i, entry.text.size(), kMaxTokenBytes);
    }
    vocabulary.texts_[i] = std::move(entry.text);
    vocabulary.flags_[i] =
        static_cast<std::uint8_t>(kExists | (entry.in_model ? kInModel : 0) | (entry.special ? kSpecial : 0));
    const auto index = static_cast<std::uint32_t>(i);
    if (entry.in_model) {
      vocabulary.model_index_.insert(vocabulary.texts_, index);
      vocabulary.longest_in_model_ = std::max(vocabulary.longest_in_model_, vocabulary.texts_[i].size());
    } else {
      vocabulary.outside_index_.insert(vocabulary.texts_, index);
    }
  }
  for (char32_t c = 0; c < vocabulary.char_ids_.size(); ++c) {
    std::string text;
    append_utf8(text, c);
    vocabulary.char_ids_[c] = vocabulary.find_in_model(text).value_or(-1);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocabulary.byte_ids_[byte] = vocabulary.find_in_model(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  return vocabulary;
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  if (const auto found = find_in_model(text)) return found;
  const auto found = outside_index_.find(texts_, text);
  return found ? std::optional(static_cast<TokenId>(*found)) : std::nullopt;
}

std::optional<TokenId> Vocabulary::find_in_model(std::string_view text) const {
  const auto found = model_index_.find(texts_, text);
  return found ? std::optional(static_cast<TokenId>(*found)) : std::nullopt;
}

std::optional<TokenId> Vocabulary::find_in_model(char32_t c) const {
  if (c < char_ids_.size()) return char_ids_[c] < 0 ? std::nullopt : std::optional(char_ids_[c]);
  std::string text;
  append_utf8(text, c);
  return find_in_model(text);
}

std::optional<std::uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (c < 'A' || c > 'F')) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(decimal ? c - '0' : c - 'A' + 10);
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace vernier::text_internal
