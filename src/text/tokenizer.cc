// The pipeline from text to ids.
#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace vernier {
namespace text_internal {
namespace {

/// A text in code points with the literal ranges as positions in it.
struct DecodedText {
  std::u32string text;
  std::vector<AddedTokenMatcher::Range> literal;
};

Result<DecodedText> decode_with_ranges(std::string_view utf8, std::span<const TextRange> ranges) {
  std::size_t last = 0;
  for (const TextRange& range : ranges) {
    if (range.begin < last || range.end < range.begin || range.end > utf8.size()) {
      return fail(ErrorCode::kInvalidArgument, "literal range {}..{} isn't ascending within a text of {} bytes",
                  range.begin, range.end, utf8.size());
    }
    last = range.end;
  }
  DecodedText out;
  out.text.reserve(utf8.size());
  auto next = ranges.begin();
  bool open = false;
  std::size_t begin = 0;
  // A character that a range covers in part belongs to it.
  for (std::size_t at = 0;;) {
    if (open && at >= next->end) {
      out.literal.push_back({begin, out.text.size()});
      open = false;
      ++next;
    }
    if (at >= utf8.size()) return out;
    const Utf8Char c = decode_utf8(utf8, at);
    while (!open && next != ranges.end() && next->begin == next->end) ++next;
    if (!open && next != ranges.end() && next->begin < at + c.size) {
      open = true;
      begin = out.text.size();
    }
    out.text += c.code_point;
    at += c.size;
  }
}

/// One call of encode().
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, const TokenizerOptions& options) : parts_(parts), options_(options) {}

  Result<std::vector<TokenId>> encode(std::string_view utf8) {
    VN_ASSIGN(const DecodedText decoded, decode_with_ranges(utf8, options_.literal_ranges));
    if (options_.add_special) ids_ = parts_.prefix;
    const bool any_literal = !decoded.literal.empty();
    const AddedTokenMatcher& matcher = any_literal ? parts_.raw_tokens_and_special : parts_.raw_tokens;
    const std::u32string_view text = decoded.text;
    for (const AddedTokenMatcher::Part& part :
         matcher.split(text, {.find_special = options_.parse_special, .literal = decoded.literal})) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        VN_TRY(encode_stretch(text.substr(part.begin, part.end - part.begin), part.begin == 0, any_literal));
      }
    }
    if (options_.add_special) ids_.insert(ids_.end(), parts_.suffix.begin(), parts_.suffix.end());
    return std::move(ids_);
  }

 private:
  /// Text without raw added tokens.
  Status encode_stretch(std::u32string_view stretch, bool at_text_begin, bool any_literal) {
    VN_ASSIGN(std::u32string text, parts_.normalizer.apply(std::u32string(stretch), regex_));
    const AddedTokenMatcher& matcher = any_literal ? parts_.normalized_tokens_not_special : parts_.normalized_tokens;
    if (matcher.empty()) return encode_normalized(std::move(text), at_text_begin);
    for (const AddedTokenMatcher::Part& part :
         matcher.split(text, {.find_special = options_.parse_special, .literal = {}})) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        VN_TRY(encode_normalized(text.substr(part.begin, part.end - part.begin), at_text_begin && part.begin == 0));
      }
    }
    return {};
  }

  Status encode_normalized(std::u32string text, bool at_text_begin) {
    SplitText split{std::move(text), {}, at_text_begin};
    if (split.text.empty()) return {};
    split.pieces.push_back({0, split.text.size()});
    VN_TRY(parts_.pre_tokenizer.apply(split, regex_));
    for (const SplitText::Piece& piece : split.pieces) VN_TRY(encode_piece(split.view(piece)));
    return {};
  }

  Status encode_piece(std::u32string_view piece) {
    if (const auto* bpe = std::get_if<BpeModel>(&parts_.model)) {
      bpe->encode(piece, bpe_, ids_);
    } else if (const auto* score_bpe = std::get_if<ScoreBpeModel>(&parts_.model)) {
      score_bpe->encode(piece, score_bpe_, ids_);
    } else if (const auto* unigram = std::get_if<UnigramModel>(&parts_.model)) {
      return unigram->encode(piece, unigram_, ids_);
    }
    return {};
  }

  const TokenizerParts& parts_;
  const TokenizerOptions& options_;
  std::vector<TokenId> ids_;
  RegexScratch regex_;
  BpeScratch bpe_;
  ScoreBpeScratch score_bpe_;
  UnigramScratch unigram_;
};

}  // namespace

Status TokenizerParts::set_added_tokens(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> raw_and_special;
  std::vector<AddedToken> normalized;
  std::vector<AddedToken> not_special;
  RegexScratch scratch;
  for (const AddedToken& token : tokens) {
    if (!token.normalized) {
      raw.push_back(token);
      raw_and_special.push_back(token);
      continue;
    }
    AddedToken changed = token;
    VN_ASSIGN(changed.text, normalizer.apply(token.text, scratch));
    if (token.special) {
      raw_and_special.push_back(token);
    } else {
      not_special.push_back(changed);
    }
    normalized.push_back(std::move(changed));
  }
  VN_ASSIGN(raw_tokens, AddedTokenMatcher::build(std::move(raw)));
  VN_ASSIGN(raw_tokens_and_special, AddedTokenMatcher::build(std::move(raw_and_special)));
  VN_ASSIGN(normalized_tokens, AddedTokenMatcher::build(std::move(normalized)));
  VN_ASSIGN(normalized_tokens_not_special, AddedTokenMatcher::build(std::move(not_special)));
  return {};
}

}  // namespace text_internal

Tokenizer::Tokenizer(std::unique_ptr<const text_internal::TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                              std::string_view tokenizer_config_json) {
  VN_ASSIGN(auto parts, text_internal::load_tokenizer_json(tokenizer_json, tokenizer_config_json));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_vocabulary(GgufVocabulary vocabulary) {
  VN_ASSIGN(auto parts, text_internal::load_gguf_vocabulary(std::move(vocabulary)));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, const TokenizerOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorCode::kInvalidArgument, "text of {} bytes, at most {} can be tokenized", text.size(),
                kMaxTextBytes);
  }
  return text_internal::Encoder(*parts_, options).encode(text);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  text_internal::DecodeState state = parts_->decoder->start();
  for (const std::int32_t id : ids) parts_->decoder->push(state, id, skip_special, text);
  parts_->decoder->finish(state, text);
  return text;
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(parts_->vocabulary.size()); }
std::string_view Tokenizer::token_text(std::int32_t id) const { return parts_->vocabulary.text(id); }
std::string_view Tokenizer::token_bytes(std::int32_t id) const { return parts_->decoder->bytes(id); }
std::optional<std::int32_t> Tokenizer::find_token(std::string_view text) const { return parts_->vocabulary.find(text); }
bool Tokenizer::is_special(std::int32_t id) const { return parts_->vocabulary.special(id); }
std::optional<std::int32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<std::int32_t> Tokenizer::eos_id() const { return parts_->eos; }
std::optional<std::int32_t> Tokenizer::unknown_id() const { return parts_->unknown; }
std::optional<std::int32_t> Tokenizer::padding_id() const { return parts_->padding; }
bool Tokenizer::add_bos() const {
  return parts_->bos && !parts_->prefix.empty() && parts_->prefix.front() == *parts_->bos;
}
bool Tokenizer::add_eos() const {
  return parts_->eos && !parts_->suffix.empty() && parts_->suffix.back() == *parts_->eos;
}
std::span<const std::int32_t> Tokenizer::end_of_generation_ids() const { return parts_->end_of_generation; }

}  // namespace vernier
