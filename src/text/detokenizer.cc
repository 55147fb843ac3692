// Streaming over the decoder that Tokenizer::decode() uses too.
#include "text/detokenizer.h"

#include <utility>

#include "text/tokenizer_parts.h"

namespace vernier {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      state_(std::make_unique<text_internal::DecodeState>(tokenizer_->parts_->decoder->start())) {}
Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(std::int32_t id) {
  std::string text;
  tokenizer_->parts_->decoder->push(*state_, id, skip_special_, text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  tokenizer_->parts_->decoder->finish(*state_, text);
  return text;
}

}  // namespace vernier
