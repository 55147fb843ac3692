// A GGUF file's vocabulary to the parts of a tokenizer: what the file says is checked, what it leaves out is filled in
// from the name of its pre-tokenizer.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "text/named_pretokenizers.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

// A GGUF names one end-of-text token only, and chat models have several: these are known by their text.
constexpr auto kEndOfGenerationTexts = std::to_array<std::string_view>({
    "<|eot_id|>",   "<|im_end|>",
    "<|end|>",      "<|return|>",
    "<|call|>",     "<|flush|>",
    "<|calls|>",    "<end_of_turn>",
    "<turn|>",      "<|endoftext|>",
    "</s>",         "<|eom_id|>",
    "<EOT>",        "_<EOT>",
    "[EOT]",        "[EOS]",
    "<eos>",        "<|end_of_text|>",
    "<|fim_pad|>",  "<|repo_name|>",
    "<|file_sep|>", "<end_of_utterance>",
});

/// The vocabulary row that old conversions put where the embedding has rows without tokens.
bool is_padding_row(std::string_view text, std::size_t id) { return text == fmt::format("[PAD{}]", id); }

class Loader {
 public:
  explicit Loader(GgufVocabulary source) : source_(std::move(source)), parts_(std::make_unique<TokenizerParts>()) {}

  Result<std::unique_ptr<const TokenizerParts>> load() {
    if (source_.tokens.empty()) return fail(ErrorCode::kCorrupt, "tokenizer.ggml.tokens is missing or empty");
    VN_TRY(check_types());
    VN_TRY(build_vocabulary());
    VN_TRY(read_ids());
    DecoderOptions decoder;
    if (source_.model == "gpt2") {
      VN_TRY(build_gpt2(decoder));
    } else if (source_.model == "llama") {
      VN_TRY(build_llama(decoder));
    } else if (source_.model == "gemma4") {
      VN_TRY(build_gemma4(decoder));
    } else {
      return fail(ErrorCode::kUnsupported, "tokenizer.ggml.model '{}' isn't supported (known: gpt2, llama, gemma4)",
                  escape(source_.model));
    }
    VN_TRY(set_around());
    VN_ASSIGN(parts_->decoder, TokenDecoder::build(parts_->vocabulary, std::move(decoder)));
    collect_end_of_generation();
    return std::unique_ptr<const TokenizerParts>(std::move(parts_));
  }

 private:
  [[nodiscard]] GgufTokenType type_of(std::size_t id) const {
    return source_.token_types.empty() ? GgufTokenType::kNormal : static_cast<GgufTokenType>(source_.token_types[id]);
  }
  [[nodiscard]] bool is_special(std::size_t id) const {
    return type_of(id) == GgufTokenType::kControl || type_of(id) == GgufTokenType::kUnknown;
  }

  Status check_types() {
    const auto& types = source_.token_types;
    if (!types.empty() && types.size() != source_.tokens.size()) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.token_type has {} values for {} tokens", types.size(),
                  source_.tokens.size());
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] < 1 || types[i] > 6) {
        return fail(ErrorCode::kCorrupt, "tokenizer.ggml.token_type[{}] is {}, expected 1 to 6", i, types[i]);
      }
    }
    return {};
  }

  Status build_vocabulary() {
    std::vector<Vocabulary::Entry> entries(source_.tokens.size());
    std::vector<AddedToken> added;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Vocabulary::Entry& entry = entries[i];
      entry.text = std::move(source_.tokens[i]);
      entry.exists = !is_padding_row(entry.text, i);
      entry.in_model = entry.exists;
      entry.special = entry.exists && is_special(i);
      if (entry.exists && (entry.special || type_of(i) == GgufTokenType::kUserDefined) && !entry.text.empty()) {
        added.push_back({.text = decode_text(entry.text), .id = static_cast<TokenId>(i), .special = entry.special});
      }
    }
    source_.tokens.clear();
    VN_ASSIGN(parts_->vocabulary, Vocabulary::build(std::move(entries)));
    return parts_->set_added_tokens(added);
  }

  Status read_id(std::string_view name, const std::optional<std::int64_t>& value, std::optional<TokenId>& id) const {
    if (!value || *value == -1) return {};
    if (*value < 0 || *value >= static_cast<std::int64_t>(parts_->vocabulary.size())) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.{}_token_id is {}, outside the vocabulary of {} tokens", name,
                  *value, parts_->vocabulary.size());
    }
    id = static_cast<TokenId>(*value);
    return {};
  }

  Status read_ids() {
    VN_TRY(read_id("bos", source_.bos_id, parts_->bos));
    VN_TRY(read_id("eos", source_.eos_id, parts_->eos));
    VN_TRY(read_id("unknown", source_.unknown_id, parts_->unknown));
    VN_TRY(read_id("padding", source_.padding_id, parts_->padding));
    const std::array<std::pair<std::string_view, const std::optional<std::int64_t>*>, 5> ends = {{
        {"eot", &source_.eot_id},
        {"eom", &source_.eom_id},
        {"fim_pad", &source_.fim_pad_id},
        {"fim_rep", &source_.fim_rep_id},
        {"fim_sep", &source_.fim_sep_id},
    }};
    if (parts_->eos) parts_->end_of_generation.push_back(*parts_->eos);
    for (const auto& [name, value] : ends) {
      std::optional<TokenId> id;
      VN_TRY(read_id(name, *value, id));
      if (id) parts_->end_of_generation.push_back(*id);
    }
    return {};
  }

  Status build_bpe(BpeOptions options) {
    std::vector<BpeModel::Merge> merges;
    merges.reserve(std::min(source_.merges.size(), BpeModel::kMaxMerges + 1));
    for (const std::string& merge : source_.merges) {
      // The left side may begin with a space (never in byte-level vocabularies), hence the search from 1.
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos) {
        return fail(ErrorCode::kCorrupt, "tokenizer.ggml.merges: merge {} ('{}') isn't two tokens with a space between",
                    merges.size() + 1, escape(merge));
      }
      merges.emplace_back(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
      if (merges.size() > BpeModel::kMaxMerges) break;  // refused below
    }
    auto model = BpeModel::build(parts_->vocabulary, merges, options);
    if (!model) return tl::unexpected(with_context(std::move(model).error(), "tokenizer.ggml.merges"));
    parts_->model = *std::move(model);
    return {};
  }

  Status build_gpt2(DecoderOptions& decoder) {
    const auto* named = std::ranges::find(kNamedPreTokenizers, source_.pre, &NamedPreTokenizer::name);
    if (named == kNamedPreTokenizers.end()) {
      std::string known;
      for (const NamedPreTokenizer& row : kNamedPreTokenizers) known.append(known.empty() ? "" : ", ").append(row.name);
      return fail(ErrorCode::kUnsupported, "tokenizer.ggml.pre '{}' isn't supported (known: {})", escape(source_.pre),
                  known);
    }
    if (named->nfc) parts_->normalizer.add(NfcStep{});
    VN_TRY(add_named_steps(*named, parts_->pre_tokenizer));
    parts_->pre_tokenizer.add(ByteLevelStep{});
    add_bos_default_ = named->add_bos;
    decoder.byte_level = true;
    return build_bpe({.whole_first = named->whole_first});
  }

  /// Spaces become U+2581, and so they do back in decoded text.
  void use_metaspaces(DecoderOptions& decoder) {
    parts_->normalizer.add(ReplaceStep{std::u32string(U" "), U"\u2581"});
    decoder.replaces.push_back(ReplaceStep{std::u32string(U"\u2581"), U" "});
    decoder.byte_fallback = true;
  }

  Status build_llama(DecoderOptions& decoder) {
    if (source_.add_space_prefix.value_or(true)) {
      parts_->normalizer.add(PrependStep{U"\u2581"});
      decoder.strip_left = 1;
    }
    use_metaspaces(decoder);
    add_bos_default_ = true;
    auto model = ScoreBpeModel::build(parts_->vocabulary, source_.scores, parts_->unknown);
    if (!model) return tl::unexpected(with_context(std::move(model).error(), "tokenizer.ggml.scores"));
    parts_->model = *std::move(model);
    return {};
  }

  Status build_gemma4(DecoderOptions& decoder) {
    use_metaspaces(decoder);
    add_bos_default_ = true;
    return build_bpe({.byte_fallback = true, .fuse_unknown = true, .unknown = parts_->unknown});
  }

  Status set_around() {
    if (source_.add_bos.value_or(add_bos_default_) && parts_->bos) parts_->prefix.push_back(*parts_->bos);
    if (source_.add_eos.value_or(false) && parts_->eos) parts_->suffix.push_back(*parts_->eos);
    if (source_.add_bos.value_or(false) && !parts_->bos) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.add_bos_token is true, but there is no bos_token_id");
    }
    if (source_.add_eos.value_or(false) && !parts_->eos) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.add_eos_token is true, but there is no eos_token_id");
    }
    return {};
  }

  void collect_end_of_generation() {
    auto& ends = parts_->end_of_generation;
    const auto is_end = [&](std::string_view text) {
      // A token of type "normal" that looks like one of these is ordinary text.
      const auto id = parts_->vocabulary.find(text);
      return id && (source_.token_types.empty() || type_of(static_cast<std::size_t>(*id)) == GgufTokenType::kControl ||
                    type_of(static_cast<std::size_t>(*id)) == GgufTokenType::kUserDefined)
                 ? id
                 : std::nullopt;
    };
    for (const std::string_view text : kEndOfGenerationTexts) {
      if (const auto id = is_end(text)) ends.push_back(*id);
    }
    // Where messages end with <|end|> but answers with <|return|> or <|call|>, <|end|> only separates channels.
    if (is_end("<|return|>") && is_end("<|call|>")) {
      if (const auto end = is_end("<|end|>")) std::erase(ends, *end);
    }
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }

  GgufVocabulary source_;
  std::unique_ptr<TokenizerParts> parts_;
  bool add_bos_default_ = false;
};

}  // namespace

Result<std::unique_ptr<const TokenizerParts>> load_gguf_vocabulary(GgufVocabulary source) {
  return Loader(std::move(source)).load();
}

}  // namespace vernier::text_internal
