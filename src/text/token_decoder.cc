// Decoding of single tokens, and the hold-back of incomplete characters.
#include "text/token_decoder.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/pretokenizer.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

constexpr std::size_t kMaxDecodedBytes = std::size_t{256} << 20U;
constexpr std::size_t kMaxDecodedCharacters = std::size_t{1} << 20U;  // of one token

/// The bytes that a token of a byte-level vocabulary stands for; a text with any other character stands for itself.
std::string decode_byte_level(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const int byte = c.valid ? byte_of_level_character(c.code_point) : -1;
    if (byte < 0) return std::string(text);
    bytes += static_cast<char>(byte);
    at += c.size;
  }
  return bytes;
}

/// Whether the ill-formed subpart at the end of a text may become a character with the bytes to come.
bool is_incomplete(std::string_view text, std::size_t at, const Utf8Char& c) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return !c.valid && at + c.size == text.size() && lead >= 0xC2 && lead <= 0xF4;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::build(const Vocabulary& vocabulary, DecoderOptions options) {
  TokenDecoder decoder(vocabulary, std::move(options));
  RegexScratch scratch;
  decoder.offsets_.push_back(0);
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    VN_ASSIGN(const std::string bytes, decoder.decode_token(static_cast<TokenId>(i), scratch));
    decoder.arena_ += bytes;
    if (decoder.arena_.size() > kMaxDecodedBytes) {
      return fail(ErrorCode::kUnsupported, "decoded vocabulary of more than {} bytes", kMaxDecodedBytes);
    }
    decoder.offsets_.push_back(static_cast<std::uint32_t>(decoder.arena_.size()));
  }
  return decoder;
}

Result<std::string> TokenDecoder::decode_token(TokenId id, RegexScratch& scratch) const {
  std::string text(vocabulary_->text(id));
  if (options_.byte_level) return decode_byte_level(text);
  if (options_.metaspace != 0) {
    std::u32string characters = decode_text(text);
    std::ranges::replace(characters, options_.metaspace, U' ');
    return encode_text(characters);
  }
  for (const ReplaceStep& step : options_.replaces) {
    VN_ASSIGN(const std::u32string replaced, replace_matches(step, decode_text(text), kMaxDecodedCharacters, scratch));
    text = encode_text(replaced);
  }
  if (options_.byte_fallback) {
    if (const auto byte = parse_byte_token(text)) return std::string(1, static_cast<char>(*byte));
  }
  return text;
}

std::string_view TokenDecoder::bytes(TokenId id) const {
  if (!vocabulary_->exists(id)) return {};
  const auto at = static_cast<std::size_t>(id);
  return std::string_view(arena_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

std::string TokenDecoder::first_token_bytes(TokenId id) const {
  if (options_.metaspace == 0 || !options_.drop_first) return std::string(bytes(id));
  std::u32string characters = decode_text(vocabulary_->text(id));
  std::erase(characters, options_.metaspace);
  return encode_text(characters);
}

void TokenDecoder::push(DecodeState& state, TokenId id, bool skip_special, std::string& out) const {
  if (!vocabulary_->exists(id) || (skip_special && vocabulary_->special(id))) return;
  if (state.at_start) {
    state.held += first_token_bytes(id);
  } else {
    if (options_.join_with_space) state.held += ' ';
    state.held += bytes(id);
  }
  state.at_start = false;
  emit(state, false, out);
}

void TokenDecoder::finish(DecodeState& state, std::string& out) const {
  emit(state, true, out);
  state = start();
}

void TokenDecoder::emit(DecodeState& state, bool last, std::string& out) const {
  std::size_t at = 0;
  while (at < state.held.size()) {
    const Utf8Char c = decode_utf8(state.held, at);
    if (!last && is_incomplete(state.held, at, c)) break;
    at += c.size;
    if (state.strip_left > 0 && c.valid && c.code_point == options_.strip_character) {
      --state.strip_left;
      continue;
    }
    state.strip_left = 0;
    append_utf8(out, c.code_point);
  }
  state.held.erase(0, at);
}

}  // namespace vernier::text_internal
