// Text to token ids and back. The two ways to make a Tokenizer are a Hugging Face tokenizer.json and the vocabulary of
// a GGUF file; both end in the same pipeline (added tokens, normaliser, pre-tokenizer, model, special tokens around).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/gguf_vocabulary.h"

namespace vernier {

namespace text_internal {
struct TokenizerParts;
class TokenDecoder;
}  // namespace text_internal

/// A half-open range of bytes of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct TokenizerOptions {
  bool add_special = true;    ///< put BOS, EOS and the like around, where the model wants them
  bool parse_special = true;  ///< false leaves control tokens in the text as text; user-defined tokens are always found
  /// Byte ranges, ascending and disjoint, in which control tokens stay text although parse_special is on: what users
  /// wrote inside a rendered chat template. The text is still tokenized as one piece. Must outlive the call.
  std::span<const TextRange> literal_ranges = {};
};

/// An immutable tokenizer; every member may be called from any number of threads.
class Tokenizer {
 public:
  /// Largest text that encode() takes, in bytes.
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20U;

  /// From the bytes of tokenizer.json and, for BOS and EOS, of tokenizer_config.json (may be empty). Parts that aren't
  /// supported are kUnsupported naming the part, contradictions are kCorrupt naming the field.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view tokenizer_config_json = {});
  /// From a GGUF file's values. Unknown models and pre-tokenizers are kUnsupported naming the known ones.
  static Result<std::shared_ptr<const Tokenizer>> from_vocabulary(GgufVocabulary vocabulary);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of a text. Ill-formed UTF-8 is replaced by U+FFFD (one for each maximal subpart) before anything else.
  /// Time is linear in the text (n log n for one long piece). Errors: text above kMaxTextBytes; a character that a
  /// unigram model has neither a piece nor an unknown token for.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(std::string_view text,
                                                         const TokenizerOptions& options = {}) const;
  /// The text of ids, always well-formed UTF-8. Ids without a token give nothing; `skip_special` leaves out special
  /// tokens (control and unknown ones). No space is ever cleaned up.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  /// One more than the highest id that has a token. A model's embedding may have more rows.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// The token as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>"); empty when the id has no token.
  [[nodiscard]] std::string_view token_text(std::int32_t id) const;
  /// The bytes that the token stands for in decoded text (" the", "\n"); not always UTF-8. Empty when the id has none.
  /// Lives as long as the tokenizer.
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;
  /// The id of the token that the vocabulary spells exactly so.
  [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view text) const;
  /// True for tokens that skip_special leaves out (control and unknown ones); false for ids without a token.
  [[nodiscard]] bool is_special(std::int32_t id) const;

  [[nodiscard]] std::optional<std::int32_t> bos_id() const;
  [[nodiscard]] std::optional<std::int32_t> eos_id() const;
  [[nodiscard]] std::optional<std::int32_t> unknown_id() const;
  [[nodiscard]] std::optional<std::int32_t> padding_id() const;
  /// Whether encode() with add_special begins with BOS / ends with EOS.
  [[nodiscard]] bool add_bos() const;
  [[nodiscard]] bool add_eos() const;
  /// Ids that end a generation, ascending: EOS; for GGUF also EOT, EOM and the control tokens that are known by their
  /// text (such as <|eot_id|>), since a GGUF names one EOS only. generation_config.json may add more: the caller's job.
  [[nodiscard]] std::span<const std::int32_t> end_of_generation_ids() const;

 private:
  friend class Detokenizer;
  explicit Tokenizer(std::unique_ptr<const text_internal::TokenizerParts> parts);

  std::unique_ptr<const text_internal::TokenizerParts> parts_;
};

}  // namespace vernier
