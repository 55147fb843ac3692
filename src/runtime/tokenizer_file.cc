// The public TokenizerFile: a vocabulary and chat template without weights.
#include "runtime/opened_model.h"
#include "vernier/tokenizer.h"

namespace vernier {

struct TokenizerFile::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string chat_template;
};

namespace {

bool is_bare_tokenizer(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".json" && std::filesystem::is_regular_file(path, ignored) &&
         !path.filename().string().ends_with(".index.json");
}

/// tokenizer.json given as a file: what stands beside it (tokenizer_config.json, template) counts too, as a folder's.
Result<TokenizerFile::Impl> open_vocabulary(const std::filesystem::path& path) {
  TokenizerFile::Impl impl;
  if (is_bare_tokenizer(path) && path.filename() != "tokenizer.json") {
    VN_ASSIGN(const auto file, MappedFile::open(path));
    auto tokenizer = Tokenizer::from_json(text_of(file));
    if (!tokenizer) return tl::unexpected(with_context(std::move(tokenizer).error(), file->name()));
    impl.tokenizer = std::move(*tokenizer);
    return impl;
  }
  OpenOptions options;
  options.need_tensors = false;
  const std::filesystem::path folder =
      is_bare_tokenizer(path) ? (path.has_parent_path() ? path.parent_path() : std::filesystem::path(".")) : path;
  VN_ASSIGN(const CheckpointFiles files, open_checkpoint(folder, options));
  auto tokenizer = open_tokenizer(files);
  if (!tokenizer) return tl::unexpected(with_context(std::move(tokenizer).error(), files.name()));
  impl.tokenizer = std::move(*tokenizer);
  VN_ASSIGN(impl.chat_template, open_chat_template(files));
  return impl;
}

std::string text_of_id(const Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

}  // namespace

Outcome<TokenizerFile> TokenizerFile::open(const std::filesystem::path& path) {
  auto impl = open_vocabulary(path);
  if (!impl) return std::move(impl).error();
  return TokenizerFile(std::make_shared<const Impl>(std::move(*impl)));
}

Outcome<std::vector<std::int32_t>> TokenizerFile::encode(std::string_view text, bool add_special,
                                                         bool parse_special) const {
  auto ids = impl_->tokenizer->encode(text, {.add_special = add_special, .parse_special = parse_special});
  if (!ids) return std::move(ids).error();
  return std::move(*ids);
}

Outcome<std::string> TokenizerFile::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("ids[{}] must be in 0..{}, found {}", i, vocab_size() - 1, ids[i]),
                   {}};
    }
  }
  return impl_->tokenizer->decode(ids, skip_special);
}

std::int64_t TokenizerFile::vocab_size() const { return impl_->tokenizer->vocab_size(); }
std::string TokenizerFile::token_text(std::int32_t id) const { return std::string(impl_->tokenizer->token_text(id)); }
const std::string& TokenizerFile::chat_template() const { return impl_->chat_template; }
std::string TokenizerFile::bos_text() const { return text_of_id(*impl_->tokenizer, impl_->tokenizer->bos_id()); }
std::string TokenizerFile::eos_text() const { return text_of_id(*impl_->tokenizer, impl_->tokenizer->eos_id()); }

}  // namespace vernier
