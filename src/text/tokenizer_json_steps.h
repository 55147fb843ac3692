// The parts of tokenizer.json that are lists of steps: normaliser, pre-tokenizer, decoder. Each takes null for "none".
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/token_decoder.h"

namespace vernier::text_internal {

Result<Normalizer> parse_normalizer(const Json& json);
Result<PreTokenizer> parse_pre_tokenizer(const Json& json);
Result<DecoderOptions> parse_decoder(const Json& json);

}  // namespace vernier::text_internal
