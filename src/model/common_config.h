// The parts of a configuration that families share, read from either container. A family's file calls these and adds
// what is its own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config_reader.h"
#include "model/model.h"
#include "model/model_config.h"

namespace vernier {

/// Limits on what a configuration may say.
inline constexpr IntRange kLayerRange{1, 512};
inline constexpr IntRange kHeadRange{1, 1024};
inline constexpr IntRange kHeadDimRange{1, 4096};
inline constexpr IntRange kWidthRange{1, 1 << 20};
inline constexpr IntRange kExpertRange{1, 4096};
inline constexpr IntRange kVocabRange{1, 1 << 24};

// --- config.json -----------------------------------------------------------------------------------------------------

/// The reader of the text model: "text_config" when there is one, else the root.
[[nodiscard]] ConfigReader hf_text_section(ConfigReader& root);
/// Sizes, norm epsilon, context length, special ids, tied head: the keys that all families spell alike. `root` differs
/// from `text` where the text model is wrapped by a multimodal one.
void read_hf_common(ConfigReader& root, ConfigReader& text, ModelConfig& config);
/// "rope_parameters" or "rope_scaling" and the places where theta and the rotated part may stand, with the family's
/// defaults.
void read_hf_rope(ConfigReader& text, ModelConfig& config, double default_theta, double default_part = 1.0);
/// One set of rope keys (a value of rope_parameters): type, theta, scaling.
void read_hf_rope_keys(ConfigReader& keys, double default_theta, double context, RopeConfig& rope);
/// "layer_types" as layer kinds; empty when absent. Unknown names and a wrong number of layers are errors.
[[nodiscard]] std::vector<LayerKind> read_hf_layer_types(ConfigReader& text, std::int64_t num_layers);
/// "sliding_window" for families in which a window covers all layers or those from max_window_layers on.
void read_hf_sliding_window(ConfigReader& text, ModelConfig& config);
/// Refuses a model whose activation isn't `expected`: it would load and answer nonsense.
void refuse_other_activation(ConfigReader& text, std::string_view key, std::string_view expected);
/// Numbers of experts. Both spellings of the count ("num_experts", "num_local_experts").
void read_hf_experts(ConfigReader& text, ModelConfig& config);

// --- GGUF keys -------------------------------------------------------------------------------------------------------

/// A reader of the keys of architecture `name`: "llama" reads "llama.block_count" as "block_count".
[[nodiscard]] ConfigReader gguf_reader(const Json& keys, std::string_view name);
/// As read_hf_common(). `keys` is the whole object, for what stands outside the architecture's own keys.
void read_gguf_common(const Json& keys, ConfigReader& reader, ModelConfig& config);
/// attention.head_count_kv for families in which all layers agree: one number, or an array of equal ones.
void read_gguf_kv_heads(ConfigReader& reader, ModelConfig& config);
/// A key that is one number, or an array with one a layer: always [num_layers] values. Absent: empty.
[[nodiscard]] std::vector<std::int64_t> read_gguf_per_layer(ConfigReader& reader, std::string_view key,
                                                            std::int64_t num_layers, IntRange range);
/// rope.freq_base and rope.scaling.*.
void read_gguf_rope(ConfigReader& reader, ModelConfig& config, double default_theta);
/// expert_count, expert_used_count, expert_feed_forward_length.
void read_gguf_experts(ConfigReader& reader, ModelConfig& config);

// --- both ------------------------------------------------------------------------------------------------------------

/// Fills what may be left out (layer kinds, sparse layers) and checks values against each other: heads by KV heads,
/// experts used by experts, list lengths, rotary dims, special ids. Returns the reader's first error, or its own.
[[nodiscard]] Result<ModelConfig> finish_config(ConfigReader& reader, ModelConfig config);

/// The cache shapes of a family whose layers all keep num_kv_heads x head_dim.
[[nodiscard]] CacheShapes uniform_caches(const ModelConfig& config);

}  // namespace vernier
