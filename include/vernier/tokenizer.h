// Text to ids and back with the vocabulary of a checkpoint, without its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vernier/error.h"

namespace vernier {

/// A vocabulary, opened from a model, a GGUF without tensors, a folder or a bare tokenizer.json. Immutable; safe to use
/// from several threads.
class TokenizerFile {
 public:
  /// An empty path is the embedded demo model's.
  [[nodiscard]] static Outcome<TokenizerFile> open(const std::filesystem::path& path);

  /// Ids of UTF-8 text; ill-formed parts count as U+FFFD. See Engine::tokenize for the flags.
  [[nodiscard]] Outcome<std::vector<std::int32_t>> encode(std::string_view text, bool add_special,
                                                          bool parse_special) const;
  /// kInvalidArgument when an id is outside the vocabulary.
  [[nodiscard]] Outcome<std::string> decode(std::span<const std::int32_t> ids, bool skip_special) const;
  [[nodiscard]] std::int64_t vocab_size() const;
  /// The text of one id, as the vocabulary spells it; empty when there is none.
  [[nodiscard]] std::string token_text(std::int32_t id) const;
  /// Jinja source of the chat template that the files hold, or empty.
  [[nodiscard]] const std::string& chat_template() const;
  [[nodiscard]] std::string bos_text() const;
  [[nodiscard]] std::string eos_text() const;

  struct Impl;

 private:
  explicit TokenizerFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace vernier
