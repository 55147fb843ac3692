// Search for added tokens with a trie.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

std::uint64_t edge_key(std::uint32_t node, char32_t c) { return std::uint64_t{node} << 32U | c; }

/// How a range of characters lies to the literal ranges. `next` is the first that ends behind `begin`; begins only
/// grow.
enum class Overlap : std::uint8_t { kNone, kPartial, kInside };
Overlap overlap_with(std::span<const AddedTokenMatcher::Range> literal, std::size_t& next, std::size_t begin,
                     std::size_t end) {
  while (next < literal.size() && literal[next].end <= begin) ++next;
  if (next == literal.size() || literal[next].begin >= end) return Overlap::kNone;
  return literal[next].begin <= begin && literal[next].end >= end ? Overlap::kInside : Overlap::kPartial;
}

bool stands_alone(std::u32string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !is_word(text[begin - 1])) && (end == text.size() || !is_word(text[end]));
}

}  // namespace

Result<AddedTokenMatcher> AddedTokenMatcher::build(std::vector<AddedToken> tokens) {
  AddedTokenMatcher matcher;
  matcher.tokens_ = std::move(tokens);
  std::size_t characters = 0;
  for (const AddedToken& token : matcher.tokens_) {
    if (token.text.size() > kMaxTokenCharacters) {
      return fail(ErrorCode::kUnsupported, "added token {} has {} characters, more than {}", token.id,
                  token.text.size(), kMaxTokenCharacters);
    }
    characters += token.text.size();
  }
  matcher.edges_ = IntegerMap<std::uint32_t>(characters);
  matcher.token_at_.assign(1, -1);
  for (std::size_t i = 0; i < matcher.tokens_.size(); ++i) {
    if (matcher.tokens_[i].text.empty()) continue;
    std::uint32_t node = 0;
    for (const char32_t c : matcher.tokens_[i].text) {
      const std::uint64_t key = edge_key(node, c);
      if (matcher.edges_.insert(key, static_cast<std::uint32_t>(matcher.token_at_.size()))) {
        matcher.token_at_.push_back(-1);
      }
      node = *matcher.edges_.find(key);
    }
    if (matcher.token_at_[node] < 0) matcher.token_at_[node] = static_cast<std::int32_t>(i);
  }
  return matcher;
}

const AddedToken* AddedTokenMatcher::longest_at(std::u32string_view text, std::size_t at) const {
  const AddedToken* found = nullptr;
  std::uint32_t node = 0;
  for (; at < text.size(); ++at) {
    const std::uint32_t* next = edges_.find(edge_key(node, text[at]));
    if (next == nullptr) break;
    node = *next;
    if (token_at_[node] >= 0) found = &tokens_[static_cast<std::size_t>(token_at_[node])];
  }
  return found;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::split(std::u32string_view text, const Options& options) const {
  std::vector<Part> parts;
  std::size_t done = 0;  // everything before is in parts
  std::size_t next_literal = 0;
  for (std::size_t at = 0; at < text.size() && !empty();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->text.size();
    const Overlap overlap = token->special ? overlap_with(options.literal, next_literal, begin, end) : Overlap::kNone;
    // What isn't a token here is passed over as a whole; one that straddles a border may hide another that doesn't.
    at = overlap == Overlap::kPartial ? begin + 1 : end;
    if (token->special && (!options.find_special || overlap != Overlap::kNone)) continue;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    while (token->strip_left && begin > done && is_white_space(text[begin - 1])) --begin;
    while (token->strip_right && end < text.size() && is_white_space(text[end])) ++end;
    begin = std::max(begin, done);  // a token that begins with space that the one before has taken
    if (begin > done) parts.push_back({-1, done, begin});
    parts.push_back({token->id, begin, end});
    done = std::max(done, end);
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

}  // namespace vernier::text_internal
