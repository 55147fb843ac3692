// The keys of a GGUF file as one flat JSON object, so that one strict reader serves both containers.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace vernier {

class GgufMetadata;

/// Takes "general.*", "tokenizer.ggml.*" and the architecture's own keys. Scalars keep their type (float32 becomes a
/// double), texts are cut after 256 bytes; numeric and bool arrays of up to 1024 elements become arrays; any other
/// array is replaced by the number of its elements, so "tokenizer.ggml.tokens" is the size of the vocabulary.
[[nodiscard]] Result<Json> json_from_gguf(const GgufMetadata& metadata);

}  // namespace vernier
