// The tokenizer.ggml.* values of a GGUF file as a plain struct, filled by whoever reads the container. Not validated
// here: Tokenizer::from_vocabulary() does that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vernier {

/// Token types of GGUF (`tokenizer.ggml.token_type`).
enum class GgufTokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// Everything that a GGUF file says about its tokenizer. Ids keep the file's value: -1 and absence mean "none", and any
/// other value outside the vocabulary is refused later. Read unsigned values without narrowing (4294967295 stays that).
struct GgufVocabulary {
  std::string model;                ///< tokenizer.ggml.model: "gpt2", "llama" or "gemma4"
  std::string pre;                  ///< tokenizer.ggml.pre, empty when absent
  std::vector<std::string> tokens;  ///< tokenizer.ggml.tokens, in the file's spelling (byte-level mapped for gpt2)
  std::vector<float> scores;        ///< tokenizer.ggml.scores, empty when absent
  std::vector<std::int32_t> token_types;  ///< tokenizer.ggml.token_type, empty when absent
  std::vector<std::string> merges;        ///< tokenizer.ggml.merges ("left right"), by rank

  std::optional<std::int64_t> bos_id;      ///< tokenizer.ggml.bos_token_id
  std::optional<std::int64_t> eos_id;      ///< tokenizer.ggml.eos_token_id
  std::optional<std::int64_t> eot_id;      ///< tokenizer.ggml.eot_token_id
  std::optional<std::int64_t> eom_id;      ///< tokenizer.ggml.eom_token_id
  std::optional<std::int64_t> unknown_id;  ///< tokenizer.ggml.unknown_token_id
  std::optional<std::int64_t> padding_id;  ///< tokenizer.ggml.padding_token_id
  std::optional<std::int64_t> fim_pad_id;  ///< tokenizer.ggml.fim_pad_token_id
  std::optional<std::int64_t> fim_rep_id;  ///< tokenizer.ggml.fim_rep_token_id
  std::optional<std::int64_t> fim_sep_id;  ///< tokenizer.ggml.fim_sep_token_id

  std::optional<bool> add_bos;           ///< tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;           ///< tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;  ///< tokenizer.ggml.add_space_prefix
};

}  // namespace vernier
