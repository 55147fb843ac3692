// Hyper-parameters of a model, normalised: whatever the spelling in config.json or GGUF metadata, code behind this
// header sees one set of names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vernier {

struct RopeConfig {
  enum class Scaling : std::uint8_t { kNone, kLinear, kLlama3, kYarn, kProportional };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // kLlama3
  double high_freq_factor = 4.0;  // kLlama3
  double original_context = 0.0;  // kLlama3, kYarn
  double beta_fast = 32.0;        // kYarn
  double beta_slow = 1.0;         // kYarn
  bool truncate = true;           // kYarn: round the correction range to whole dimensions
  std::optional<double> attention_factor;
  std::int64_t rotary_dims = 0;  ///< dims of a head that rotate (kProportional: those with a non-zero frequency)
  bool interleaved = false;      ///< GGUF llama files: pairs (2j, 2j + 1)
};

enum class LayerKind : std::uint8_t { kFullAttention, kSlidingAttention, kLinearAttention };

struct ModelConfig {
  std::string architecture;  ///< "llama", "qwen3moe", ...: a name of model_list.cc
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;  ///< trunk layers, without MTP
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t context_length = 0;
  double norm_eps = 0.0;
  bool tied_head = false;  ///< what the config says; a stored head wins where the family says so
  bool qkv_bias = false;
  bool output_bias = false;  ///< attention output projection
  bool mlp_bias = false;
  RopeConfig rope;
  std::int64_t sliding_window = 0;  ///< 0: none
  std::vector<LayerKind> layers;    ///< [num_layers]

  // Mixture of experts; num_experts 0: dense. A layer is sparse where sparse[layer].
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate_size = 0;
  bool normalize_routing = true;
  std::vector<bool> sparse;

  std::int64_t mtp_layers = 0;  ///< what the config promises
  bool from_gguf = false;       ///< the few places where a container changes the maths (permuted q/k, plain norms)

  std::vector<std::int64_t> eos_ids;
  std::optional<std::int64_t> bos_id;
};

}  // namespace vernier
