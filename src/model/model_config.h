// Hyper-parameters of a model, normalised: whatever the spelling in config.json or GGUF metadata, code behind this
// header sees one set of names. Values are checked against each other by finish_config() (common_config.h).
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
  double low_freq_factor = 1.0;            ///< kLlama3
  double high_freq_factor = 4.0;           ///< kLlama3
  double original_context = 0.0;           ///< kLlama3, kYarn
  double beta_fast = 32.0;                 ///< kYarn
  double beta_slow = 1.0;                  ///< kYarn
  bool truncate = true;                    ///< kYarn: round the correction range to whole dimensions
  std::optional<double> attention_factor;  ///< kYarn: replaces 0.1 ln(factor) + 1
  std::int64_t rotary_dims = 0;            ///< dims of a head that rotate
  bool interleaved = false;                ///< GGUF llama files: pairs (2j, 2j + 1)
};

/// Where the output head comes from.
enum class HeadRule : std::uint8_t {
  kOwn,       ///< a tensor of its own, required
  kTied,      ///< the embedding; a stored head that differs wins (TensorSpec::tied_to)
  kIfStored,  ///< a stored head if there is one, else the embedding: GGUF, and configs that don't say
};

enum class LayerKind : std::uint8_t { kFullAttention, kSlidingAttention, kLinearAttention };

/// Gated delta net layers (qwen35 families).
struct DeltaNetConfig {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_width = 0;

  [[nodiscard]] std::int64_t key_width() const { return key_heads * key_head_dim; }
  [[nodiscard]] std::int64_t value_width() const { return value_heads * value_head_dim; }
  /// Channels of the convolution: q, k and v side by side.
  [[nodiscard]] std::int64_t channels() const { return 2 * key_width() + value_width(); }
};

/// What only gemma4 has. ModelConfig's head_dim, num_kv_heads and rope are those of its sliding layers.
struct Gemma4Config {
  std::int64_t full_head_dim = 0;
  std::int64_t full_kv_heads = 0;
  RopeConfig full_rope;
  bool full_value_is_key = false;     ///< full layers have no value projection
  std::int64_t shared_kv_layers = 0;  ///< the last layers that read an earlier layer's keys and values
  bool wide_shared_mlp = false;       ///< those layers have an MLP of twice the width
  std::int64_t per_layer_width = 0;   ///< of the per-layer embeddings; 0: none
  std::int64_t per_layer_vocab = 0;
};

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
  HeadRule head = HeadRule::kOwn;
  bool qkv_bias = false;
  bool output_bias = false;  ///< attention output projection
  bool mlp_bias = false;
  RopeConfig rope;
  std::int64_t sliding_window = 0;  ///< 0: none
  std::vector<LayerKind> layers;    ///< [num_layers]
  double logit_soft_cap = 0.0;      ///< 0: none

  // Mixture of experts; num_experts 0: dense. A layer is sparse where sparse[layer].
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate_size = 0;
  std::int64_t shared_expert_intermediate_size = 0;  ///< 0: no shared expert
  bool normalize_routing = true;
  std::vector<bool> sparse;
  double swiglu_limit = 7.0;    ///< gpt-oss
  double swiglu_alpha = 1.702;  ///< gpt-oss

  DeltaNetConfig delta_net;
  Gemma4Config gemma4;

  std::int64_t mtp_layers = 0;  ///< what the config promises
  std::vector<std::int64_t> eos_ids;
  std::optional<std::int64_t> bos_id;

  // About the files, not the model.
  bool from_gguf = false;   ///< the few places where a container changes the maths (permuted q/k, plain norms)
  std::string name_prefix;  ///< safetensors: what stands before "layers.0..." in tensor names
  std::vector<std::string> warnings;
};

}  // namespace vernier
