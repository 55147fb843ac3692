// tokenizer.json (and the names of BOS and EOS from tokenizer_config.json) to the parts of a tokenizer.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/json.h"
#include "text/json_fields.h"
#include "text/tokenizer_json_steps.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

constexpr std::int64_t kMaxId = Vocabulary::kMaxTokens - 1;

class Loader {
 public:
  explicit Loader(Json file) : file_(std::move(file)), parts_(std::make_unique<TokenizerParts>()) {}

  Result<std::unique_ptr<const TokenizerParts>> load(const Json& config) {
    VN_ASSIGN(model_, required_field(file_, "model", "tokenizer.json"));
    VN_ASSIGN(const std::string type, model_type());
    VN_TRY(read_model_vocabulary(type));
    VN_TRY(read_added_tokens());
    VN_ASSIGN(parts_->vocabulary, Vocabulary::build(std::move(entries_)));
    VN_ASSIGN(parts_->normalizer, parse_normalizer(part("normalizer")));
    VN_ASSIGN(parts_->pre_tokenizer, parse_pre_tokenizer(part("pre_tokenizer")));
    VN_TRY(parts_->set_added_tokens(added_));
    VN_TRY(type == "BPE" ? build_bpe() : build_unigram());
    VN_TRY(read_post_processor(part("post_processor")));
    VN_ASSIGN(DecoderOptions decoder, parse_decoder(part("decoder")));
    VN_ASSIGN(parts_->decoder, TokenDecoder::build(parts_->vocabulary, std::move(decoder)));
    read_config(config);
    return std::unique_ptr<const TokenizerParts>(std::move(parts_));
  }

 private:
  [[nodiscard]] const Json& part(std::string_view key) const {
    static const Json kNone;
    const Json* found = file_.find(key);
    return found == nullptr ? kNone : *found;
  }

  Result<std::string> model_type() const {
    // Older files leave the type out, and then it shows from what else there is.
    if (model_->is_object() && model_->find("type") == nullptr && model_->find("merges") != nullptr) return "BPE";
    VN_ASSIGN(std::string type, string_field(*model_, "type", "model"));
    if (type != "BPE" && type != "Unigram") {
      return fail(ErrorCode::kUnsupported, "model '{}' isn't supported (known: BPE, Unigram)", escape(type));
    }
    return type;
  }

  /// The entry of an id, or an error when the id is far beyond what the number of tokens explains.
  Result<Vocabulary::Entry*> entry_at(std::int64_t id, std::size_t num_tokens) {
    const auto index = static_cast<std::size_t>(id);
    if (index > 4 * num_tokens + 65536) {
      return fail(ErrorCode::kUnsupported, "token id {} in a vocabulary of {} tokens", id, num_tokens);
    }
    if (index >= entries_.size()) entries_.resize(index + 1);
    return &entries_[index];
  }

  Status read_model_vocabulary(std::string_view type) {
    VN_ASSIGN(const Json* vocab, required_field(*model_, "vocab", "model"));
    if (type == "BPE") {
      if (!vocab->is_object()) {
        return fail(ErrorCode::kCorrupt, "model.vocab is of type {}, expected object", vocab->type_name());
      }
      return read_bpe_vocabulary(vocab->as_object());
    }
    VN_ASSIGN(const JsonArray* rows, array_field(*model_, "vocab", "model"));
    return read_unigram_vocabulary(*rows);
  }

  Status read_bpe_vocabulary(const JsonObject& vocab) {
    for (const auto& [text, id] : vocab) {
      if (!id.is_integer() || id.is_big_unsigned() || id.as_int64() < 0 || id.as_int64() > kMaxId) {
        return fail(ErrorCode::kCorrupt, "model.vocab: the id of '{}' isn't an integer from 0 to {}", escape(text),
                    kMaxId);
      }
      VN_ASSIGN(Vocabulary::Entry * entry, entry_at(id.as_int64(), vocab.size()));
      if (entry->exists) {
        return fail(ErrorCode::kCorrupt, "model.vocab: '{}' and '{}' have the same id {}", escape(entry->text),
                    escape(text), id.as_int64());
      }
      *entry = {.text = text, .exists = true, .in_model = true};
    }
    return {};
  }

  Status read_unigram_vocabulary(const JsonArray& rows) {
    if (rows.size() > Vocabulary::kMaxTokens) {
      return fail(ErrorCode::kUnsupported, "model.vocab of {} tokens, more than {}", rows.size(),
                  Vocabulary::kMaxTokens);
    }
    for (const Json& row : rows) {
      const bool well_formed = row.is_array() && row.as_array().size() == 2 && row.as_array()[0].is_string() &&
                               row.as_array()[1].is_number();
      if (!well_formed) {
        return fail(ErrorCode::kCorrupt, "model.vocab[{}] isn't a pair of text and score", entries_.size());
      }
      entries_.push_back({.text = row.as_array()[0].as_string(), .exists = true, .in_model = true});
      scores_.push_back(row.as_array()[1].as_double());
    }
    return {};
  }

  Status read_added_tokens() {
    if (part("added_tokens").is_null()) return {};
    VN_ASSIGN(const JsonArray* rows, array_field(file_, "added_tokens", "tokenizer.json"));
    const std::size_t num_tokens = entries_.size() + rows->size();
    TextIndex ids_by_text(entries_.size());
    std::vector<std::string> texts(entries_.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      texts[i] = entries_[i].text;
      if (entries_[i].exists) ids_by_text.insert(texts, static_cast<std::uint32_t>(i));
    }
    for (const Json& row : *rows) {
      VN_ASSIGN(const AddedToken token, read_added_token(row));
      const std::string text = encode_text(token.text);
      VN_ASSIGN(Vocabulary::Entry * entry, entry_at(token.id, num_tokens));
      if (entry->exists && entry->text != text) {
        return fail(ErrorCode::kCorrupt, "added token '{}' has the id {} of '{}'", escape(text), token.id,
                    escape(entry->text));
      }
      if (const auto other = ids_by_text.find(texts, text); other && *other != static_cast<std::uint32_t>(token.id)) {
        return fail(ErrorCode::kCorrupt, "added token '{}' has the id {}, but in the vocabulary it has {}",
                    escape(text), token.id, *other);
      }
      entry->text = text;
      entry->exists = true;
      entry->special = entry->special || token.special;
      added_.push_back(token);
    }
    return {};
  }

  static Result<AddedToken> read_added_token(const Json& row) {
    constexpr std::string_view kWhere = "added_tokens";
    AddedToken token;
    VN_ASSIGN(const std::string text, string_field(row, "content", kWhere));
    if (text.empty()) return fail(ErrorCode::kCorrupt, "added_tokens: an empty content");
    VN_ASSIGN(const std::int64_t id, integer_field(row, "id", 0, kMaxId, kWhere));
    VN_ASSIGN(token.special, bool_field(row, "special", false, kWhere));
    VN_ASSIGN(token.single_word, bool_field(row, "single_word", false, kWhere));
    VN_ASSIGN(token.strip_left, bool_field(row, "lstrip", false, kWhere));
    VN_ASSIGN(token.strip_right, bool_field(row, "rstrip", false, kWhere));
    VN_ASSIGN(token.normalized, bool_field(row, "normalized", !token.special, kWhere));
    token.text = decode_text(text);
    token.id = static_cast<TokenId>(id);
    return token;
  }

  Status build_bpe() {
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      VN_ASSIGN(const std::string text, string_field_or(*model_, key, "", "model"));
      if (!text.empty()) return fail(ErrorCode::kUnsupported, "model.{} isn't supported", key);
    }
    if (const Json* dropout = model_->find("dropout"); dropout != nullptr && !dropout->is_null()) {
      if (!dropout->is_number() || dropout->as_double() != 0) {
        return fail(ErrorCode::kUnsupported, "model.dropout isn't supported");
      }
    }
    BpeOptions options;
    VN_ASSIGN(options.whole_first, bool_field(*model_, "ignore_merges", false, "model"));
    VN_ASSIGN(options.byte_fallback, bool_field(*model_, "byte_fallback", false, "model"));
    VN_ASSIGN(options.fuse_unknown, bool_field(*model_, "fuse_unk", false, "model"));
    VN_ASSIGN(const std::string unknown, string_field_or(*model_, "unk_token", "", "model"));
    if (!unknown.empty()) {
      options.unknown = parts_->vocabulary.find_in_model(unknown);
      if (!options.unknown) {
        return fail(ErrorCode::kCorrupt, "model.unk_token '{}' isn't in model.vocab", escape(unknown));
      }
    }
    parts_->unknown = options.unknown;
    VN_ASSIGN(const std::vector<BpeModel::Merge> merges, read_merges());
    auto model = BpeModel::build(parts_->vocabulary, merges, options);
    if (!model) return tl::unexpected(with_context(std::move(model).error(), "model.merges"));
    parts_->model = *std::move(model);
    return {};
  }

  /// Merges as pairs, or as strings with one space between. The views point into the JSON.
  Result<std::vector<BpeModel::Merge>> read_merges() const {
    VN_ASSIGN(const JsonArray* rows, array_field(*model_, "merges", "model"));
    std::vector<BpeModel::Merge> merges;
    merges.reserve(rows->size());
    for (const Json& row : *rows) {
      if (row.is_string()) {
        const std::string_view text = row.as_string();
        const std::size_t space = text.find(' ');
        if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
          merges.emplace_back(text.substr(0, space), text.substr(space + 1));
          continue;
        }
      } else if (row.is_array() && row.as_array().size() == 2 && row.as_array()[0].is_string() &&
                 row.as_array()[1].is_string()) {
        merges.emplace_back(row.as_array()[0].as_string(), row.as_array()[1].as_string());
        continue;
      }
      return fail(ErrorCode::kCorrupt,
                  "model.merges: merge {} is neither a pair of texts nor a text with one space between two",
                  merges.size() + 1);
    }
    return merges;
  }

  Status build_unigram() {
    UnigramOptions options;
    VN_ASSIGN(options.byte_fallback, bool_field(*model_, "byte_fallback", false, "model"));
    if (const Json* unknown = model_->find("unk_id"); unknown != nullptr && !unknown->is_null()) {
      const auto last = static_cast<std::int64_t>(scores_.size()) - 1;
      VN_ASSIGN(const std::int64_t id, integer_field(*model_, "unk_id", 0, last, "model"));
      options.unknown = static_cast<TokenId>(id);
    }
    parts_->unknown = options.unknown;
    auto model = UnigramModel::build(parts_->vocabulary, std::move(scores_), options);
    if (!model) return tl::unexpected(with_context(std::move(model).error(), "model.vocab"));
    parts_->model = *std::move(model);
    return {};
  }

  Status read_post_processor(const Json& json) {
    constexpr std::string_view kWhere = "post_processor";
    if (json.is_null()) return {};
    VN_ASSIGN(const std::string type, string_field(json, "type", kWhere));
    if (type == "ByteLevel") return {};  // offsets only
    if (type == "TemplateProcessing") return read_template(json);
    if (type == "RobertaProcessing") {
      VN_ASSIGN(const TokenId cls, read_named_id(json, "cls"));
      VN_ASSIGN(const TokenId sep, read_named_id(json, "sep"));
      parts_->prefix.insert(parts_->prefix.begin(), cls);
      parts_->suffix.push_back(sep);
      return {};
    }
    if (type == "Sequence") {
      VN_ASSIGN(const JsonArray* processors, array_field(json, "processors", kWhere));
      for (const Json& processor : *processors) VN_TRY(read_post_processor(processor));
      return {};
    }
    return fail(ErrorCode::kUnsupported,
                "post_processor '{}' isn't supported (known: TemplateProcessing, ByteLevel, RobertaProcessing, "
                "Sequence)",
                escape(type));
  }

  /// ["</s>", 2]
  Result<TokenId> read_named_id(const Json& json, std::string_view key) const {
    VN_ASSIGN(const JsonArray* pair, array_field(json, key, "post_processor"));
    if (pair->size() != 2) return fail(ErrorCode::kCorrupt, "post_processor.{} isn't a pair of text and id", key);
    return check_id((*pair)[1]);
  }

  Result<TokenId> check_id(const Json& id) const {
    const bool fits = id.is_integer() && !id.is_big_unsigned() && id.as_int64() >= 0 && id.as_int64() <= kMaxId;
    if (!fits || !parts_->vocabulary.exists(static_cast<TokenId>(id.as_int64()))) {
      return fail(ErrorCode::kCorrupt, "post_processor: a token id that the vocabulary doesn't have");
    }
    return static_cast<TokenId>(id.as_int64());
  }

  Status read_template(const Json& json) {
    constexpr std::string_view kWhere = "post_processor";
    VN_ASSIGN(const JsonArray* items, array_field(json, "single", kWhere));
    VN_ASSIGN(const Json* specials, required_field(json, "special_tokens", kWhere));
    std::vector<TokenId> prefix;
    bool seen_text = false;
    for (const Json& item : *items) {
      if (const Json* sequence = item.find("Sequence"); sequence != nullptr) {
        const Json* id = sequence->find("id");
        if (seen_text || id == nullptr || !id->is_string() || id->as_string() != "A") {
          return fail(ErrorCode::kUnsupported, "post_processor.single must have the text (sequence A) exactly once");
        }
        seen_text = true;
        continue;
      }
      VN_ASSIGN(const Json* special, required_field(item, "SpecialToken", "post_processor.single"));
      VN_ASSIGN(const std::string name, string_field(*special, "id", "post_processor.single"));
      VN_ASSIGN(const Json* known, required_field(*specials, name, "post_processor.special_tokens"));
      VN_ASSIGN(const JsonArray* ids, array_field(*known, "ids", "post_processor.special_tokens"));
      for (const Json& id : *ids) {
        VN_ASSIGN(const TokenId checked, check_id(id));
        (seen_text ? parts_->suffix : prefix).push_back(checked);
      }
    }
    if (!seen_text) {
      return fail(ErrorCode::kUnsupported, "post_processor.single must have the text (sequence A) exactly once");
    }
    parts_->prefix.insert(parts_->prefix.begin(), prefix.begin(), prefix.end());
    return {};
  }

  /// The id of a token that tokenizer_config.json names: a text, or an object with a "content".
  [[nodiscard]] std::optional<TokenId> configured(const Json& config, std::string_view key) const {
    const Json* value = config.find(key);
    if (value != nullptr && value->is_object()) value = value->find("content");
    if (value == nullptr || !value->is_string()) return std::nullopt;
    return parts_->vocabulary.find(value->as_string());
  }

  void read_config(const Json& config) {
    parts_->bos = configured(config, "bos_token");
    parts_->eos = configured(config, "eos_token");
    parts_->padding = configured(config, "pad_token");
    if (config.is_null()) {
      if (!parts_->prefix.empty()) parts_->bos = parts_->prefix.front();
      if (!parts_->suffix.empty()) parts_->eos = parts_->suffix.back();
    }
    if (parts_->eos) parts_->end_of_generation.push_back(*parts_->eos);
  }

  Json file_;
  const Json* model_ = nullptr;
  std::unique_ptr<TokenizerParts> parts_;
  std::vector<Vocabulary::Entry> entries_;
  std::vector<double> scores_;  // unigram
  std::vector<AddedToken> added_;
};

}  // namespace

Result<std::unique_ptr<const TokenizerParts>> load_tokenizer_json(std::string_view tokenizer_json,
                                                                  std::string_view tokenizer_config_json) {
  VN_ASSIGN(Json file, parse_json(tokenizer_json));
  Json config;
  if (!tokenizer_config_json.empty()) {
    auto parsed = parse_json(tokenizer_config_json);
    if (!parsed) return tl::unexpected(with_context(std::move(parsed).error(), "tokenizer_config.json"));
    config = *std::move(parsed);
  }
  return Loader(std::move(file)).load(config);
}

}  // namespace vernier::text_internal
