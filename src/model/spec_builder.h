// Helpers with which a family writes its table of tensors: one call a tensor, with its name in safetensors and in GGUF.
// Only the spellings of the container at hand are produced, with the name prefix that its files use.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_spec.h"
#include "model/model_config.h"

namespace vernier {

/// A tensor's name as the model says it and as the two containers spell it, within the current layer (or the root).
struct TensorNames {
  std::string_view role;
  std::string_view hf;
  std::string_view gguf;
};

/// Collects specs. Between begin_layer() and the next begin_...() names are those of a layer: role "layers.3.q", stored
/// as "<prefix>layers.3.self_attn.q_proj" or "blk.3.attn_q". The returned references live until the next call; they are
/// for what one family alone needs (required, add, another spelling).
class SpecBuilder {
 public:
  explicit SpecBuilder(const ModelConfig& config) : config_(config) { begin_root(); }

  /// Names outside layers: "<prefix>norm", "output_norm".
  void begin_root();
  void begin_layer(std::int64_t index);
  /// The MTP block: roles "mtp.q", stored as "mtp.layers.0.…" or "blk.<num_layers>.…". All its specs form a group that
  /// may be absent as a whole, and its matrices may be stored in any format.
  void begin_mtp_layer();
  /// Names beside the MTP block's layer: roles "mtp.fc", stored as "mtp.fc" or "blk.<num_layers>.…".
  void begin_mtp_root();

  /// A vector whose stored name ends in ".weight" (norms).
  TensorSpec& vector(const TensorNames& names, std::int64_t size);
  /// A vector or a stack of vectors under its whole name (biases, sinks, scales).
  TensorSpec& bare_vector(const TensorNames& names, std::initializer_list<std::int64_t> shape);
  /// One optional number of the KV cache. It belongs to no group: an MTP block isn't there because its scale is.
  TensorSpec& cache_scale(const TensorNames& names);
  /// A projection, [rows, cols].
  TensorSpec& linear(const TensorNames& names, std::int64_t rows, std::int64_t cols);
  /// A router or gate, [rows, cols]: no quantisation config speaks of it.
  TensorSpec& other_linear(const TensorNames& names, std::int64_t rows, std::int64_t cols);
  /// Any other kind, with ".weight".
  TensorSpec& tensor(TensorKind kind, const TensorNames& names, std::vector<std::uint64_t> shape);

  /// embed, norm, head. `norm_add`: see TensorSpec::add.
  void add_trunk(float norm_add = 0.0F);
  /// rope_freqs, which GGUF files hold in place of scaling keys.
  void add_rope_freqs(std::int64_t pairs, bool required);

  /// Adds a spelling to a spec: `name` is relative to the current layer or root.
  void also(TensorSpec& spec, std::string_view name, StoredAs stored_as, bool suffixed) const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  TensorSpec& add(TensorKind kind, const TensorNames& names, std::vector<std::uint64_t> shape, bool suffixed);

  const ModelConfig& config_;
  std::vector<TensorSpec> specs_;
  std::string role_prefix_;
  std::string stored_prefix_;
  std::int32_t layer_ = -1;
  bool mtp_ = false;
};

// --- groups that several families share ------------------------------------------------------------------------------

enum class BiasRule : std::uint8_t {
  kNone,
  kRequired,
  kOptional  ///< GGUF files say nothing but by holding the tensor
};

struct AttentionSpecs {
  std::int64_t q_rows = 0;  ///< rows of the query projection; more than heads * head_dim where it holds a gate
  std::int64_t o_cols = 0;  ///< heads * head_dim
  std::int64_t kv_rows = 0;
  std::int64_t head_dim = 0;
  BiasRule qkv_bias = BiasRule::kNone;
  BiasRule output_bias = BiasRule::kNone;
  bool head_norms = false;  ///< q_norm and k_norm
  float norm_add = 0.0F;
};
/// The usual attention of `config`: heads, KV heads and biases as it says.
[[nodiscard]] AttentionSpecs attention_specs(const ModelConfig& config);
/// Roles k_scale, v_scale: scales of an FP8 KV cache, for layers that have one of their own. All are optional.
void add_cache_scales(SpecBuilder& builder);
/// Roles q, k, v, o (each also with _bias), q_norm, k_norm, and those of add_cache_scales().
void add_attention(SpecBuilder& builder, const AttentionSpecs& specs);

/// Roles gate, up, down (each also with _bias).
void add_mlp(SpecBuilder& builder, std::int64_t width, BiasRule bias = BiasRule::kNone);

struct ExpertSpecs {
  std::int64_t num_experts = 0;
  std::int64_t width = 0;
  /// Folders of the experts within a layer, in safetensors: {"mlp.experts."}.
  std::vector<std::string> folders{"mlp.experts."};
  bool interleaved = false;  ///< fused gate_up rows alternate (gpt-oss) instead of standing in halves
};
/// Roles experts.gate, experts.up, experts.down in every published spelling.
void add_experts(SpecBuilder& builder, const ExpertSpecs& specs);

/// Roles attn_norm, ffn_norm as most families call them.
void add_layer_norms(SpecBuilder& builder, std::string_view gguf_ffn_norm = "ffn_norm", float norm_add = 0.0F);

/// Rules that hold for every family: buffers of old exports, KV-cache scales.
[[nodiscard]] std::vector<IgnoreRule> common_ignored(const ModelConfig& config);
/// Vision and audio encoders of multimodal wrappers, in all published spellings.
void ignore_encoders(std::vector<IgnoreRule>& rules);

}  // namespace vernier
