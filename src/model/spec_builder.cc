#include "model/spec_builder.h"

#include <fmt/core.h>

#include <utility>

namespace vernier {

void SpecBuilder::begin_root() {
  role_prefix_.clear();
  stored_prefix_ = config_.from_gguf ? "" : config_.name_prefix;
  layer_ = -1;
  mtp_ = false;
}

void SpecBuilder::begin_layer(std::int64_t index) {
  role_prefix_ = fmt::format("layers.{}.", index);
  stored_prefix_ =
      config_.from_gguf ? fmt::format("blk.{}.", index) : fmt::format("{}layers.{}.", config_.name_prefix, index);
  layer_ = static_cast<std::int32_t>(index);
  mtp_ = false;
}

void SpecBuilder::begin_mtp_layer() {
  begin_mtp_root();
  if (!config_.from_gguf) stored_prefix_ = "mtp.layers.0.";
}

void SpecBuilder::begin_mtp_root() {
  role_prefix_ = "mtp.";
  stored_prefix_ = config_.from_gguf ? fmt::format("blk.{}.", config_.num_layers) : "mtp.";
  layer_ = static_cast<std::int32_t>(config_.num_layers);
  mtp_ = true;
}

TensorSpec& SpecBuilder::add(TensorKind kind, const TensorNames& names, std::vector<std::uint64_t> shape,
                             bool suffixed) {
  TensorSpec spec;
  spec.role = role_prefix_ + std::string(names.role);
  spec.kind = mtp_ && kind == TensorKind::kTrunkLinear ? TensorKind::kOtherLinear : kind;
  spec.shape = std::move(shape);
  spec.layer = layer_;
  spec.mtp = mtp_;
  const std::string_view stored = config_.from_gguf ? names.gguf : names.hf;
  if (!stored.empty()) spec.spellings.push_back({stored_prefix_ + std::string(stored), StoredAs::kWhole, suffixed});
  return specs_.emplace_back(std::move(spec));
}

void SpecBuilder::also(TensorSpec& spec, std::string_view name, StoredAs stored_as, bool suffixed) const {
  spec.spellings.push_back({stored_prefix_ + std::string(name), stored_as, suffixed});
}

TensorSpec& SpecBuilder::vector(const TensorNames& names, std::int64_t size) {
  return add(TensorKind::kVector, names, {static_cast<std::uint64_t>(size)}, true);
}

TensorSpec& SpecBuilder::bare_vector(const TensorNames& names, std::initializer_list<std::int64_t> shape) {
  return add(TensorKind::kVector, names, {shape.begin(), shape.end()}, false);
}

TensorSpec& SpecBuilder::cache_scale(const TensorNames& names) {
  TensorSpec& spec = add(TensorKind::kCacheScale, names, {1}, false);
  spec.required = false;
  spec.mtp = false;
  return spec;
}

TensorSpec& SpecBuilder::linear(const TensorNames& names, std::int64_t rows, std::int64_t cols) {
  return tensor(TensorKind::kTrunkLinear, names, {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols)});
}

TensorSpec& SpecBuilder::other_linear(const TensorNames& names, std::int64_t rows, std::int64_t cols) {
  return tensor(TensorKind::kOtherLinear, names, {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols)});
}

TensorSpec& SpecBuilder::tensor(TensorKind kind, const TensorNames& names, std::vector<std::uint64_t> shape) {
  return add(kind, names, std::move(shape), true);
}

void SpecBuilder::add_trunk(float norm_add) {
  begin_root();
  const auto vocab = static_cast<std::uint64_t>(config_.vocab_size);
  const auto hidden = static_cast<std::uint64_t>(config_.hidden_size);
  tensor(TensorKind::kEmbedding, {"embed", "embed_tokens", "token_embd"}, {vocab, hidden});
  vector({"norm", "norm", "output_norm"}, config_.hidden_size).add = norm_add;

  stored_prefix_.clear();  // the head stands outside the text model
  TensorSpec& head = tensor(TensorKind::kHead, {"head", "lm_head", "output"}, {vocab, hidden});
  if (!config_.from_gguf) also(head, "language_model.lm_head", StoredAs::kWhole, true);
  head.required = config_.head == HeadRule::kOwn;
  if (config_.head == HeadRule::kTied) head.tied_to = "embed";
  begin_root();
}

void SpecBuilder::add_rope_freqs(std::int64_t pairs, bool required) {
  if (config_.from_gguf) vector({"rope_freqs", "", "rope_freqs"}, pairs).required = required;
}

// --- groups that several families share ------------------------------------------------------------------------------

namespace {

void add_bias(SpecBuilder& builder, BiasRule rule, const TensorNames& names, std::int64_t size) {
  if (rule == BiasRule::kNone) return;
  builder.bare_vector(names, {size}).required = rule == BiasRule::kRequired;
}

}  // namespace

AttentionSpecs attention_specs(const ModelConfig& config) {
  const auto rule = [](bool stated) { return stated ? BiasRule::kRequired : BiasRule::kNone; };
  return {.q_rows = config.num_heads * config.head_dim,
          .o_cols = config.num_heads * config.head_dim,
          .kv_rows = config.num_kv_heads * config.head_dim,
          .head_dim = config.head_dim,
          .qkv_bias = rule(config.qkv_bias),
          .output_bias = rule(config.output_bias)};
}

void add_cache_scales(SpecBuilder& builder) {
  if (builder.config().from_gguf) return;
  TensorSpec& key = builder.cache_scale({"k_scale", "self_attn.k_proj.k_scale", ""});
  builder.also(key, "self_attn.k_scale", StoredAs::kWhole, false);
  builder.also(key, "self_attn.kv_scale", StoredAs::kWhole, false);  // alone, it holds for values too
  TensorSpec& value = builder.cache_scale({"v_scale", "self_attn.v_proj.v_scale", ""});
  builder.also(value, "self_attn.v_scale", StoredAs::kWhole, false);
}

void add_attention(SpecBuilder& builder, const AttentionSpecs& specs) {
  const std::int64_t hidden = builder.config().hidden_size;
  builder.linear({"q", "self_attn.q_proj", "attn_q"}, specs.q_rows, hidden);
  builder.linear({"k", "self_attn.k_proj", "attn_k"}, specs.kv_rows, hidden);
  builder.linear({"v", "self_attn.v_proj", "attn_v"}, specs.kv_rows, hidden);
  builder.linear({"o", "self_attn.o_proj", "attn_output"}, hidden, specs.o_cols);
  add_bias(builder, specs.qkv_bias, {"q_bias", "self_attn.q_proj.bias", "attn_q.bias"}, specs.q_rows);
  add_bias(builder, specs.qkv_bias, {"k_bias", "self_attn.k_proj.bias", "attn_k.bias"}, specs.kv_rows);
  add_bias(builder, specs.qkv_bias, {"v_bias", "self_attn.v_proj.bias", "attn_v.bias"}, specs.kv_rows);
  add_bias(builder, specs.output_bias, {"o_bias", "self_attn.o_proj.bias", "attn_output.bias"}, hidden);
  add_cache_scales(builder);
  if (!specs.head_norms) return;
  builder.vector({"q_norm", "self_attn.q_norm", "attn_q_norm"}, specs.head_dim).add = specs.norm_add;
  builder.vector({"k_norm", "self_attn.k_norm", "attn_k_norm"}, specs.head_dim).add = specs.norm_add;
}

void add_mlp(SpecBuilder& builder, std::int64_t width, BiasRule bias) {
  const std::int64_t hidden = builder.config().hidden_size;
  builder.linear({"gate", "mlp.gate_proj", "ffn_gate"}, width, hidden);
  builder.linear({"up", "mlp.up_proj", "ffn_up"}, width, hidden);
  builder.linear({"down", "mlp.down_proj", "ffn_down"}, hidden, width);
  add_bias(builder, bias, {"gate_bias", "mlp.gate_proj.bias", "ffn_gate.bias"}, width);
  add_bias(builder, bias, {"up_bias", "mlp.up_proj.bias", "ffn_up.bias"}, width);
  add_bias(builder, bias, {"down_bias", "mlp.down_proj.bias", "ffn_down.bias"}, hidden);
}

void add_experts(SpecBuilder& builder, const ExpertSpecs& specs) {
  struct Part {
    std::string_view role, hf, gguf;
    StoredAs half, alternate, merged;
  };
  static constexpr Part kParts[] = {
      {"experts.gate", "gate_proj", "ffn_gate_exps", StoredAs::kFirstHalf, StoredAs::kEvenRows, StoredAs::kFirstHalf},
      {"experts.up", "up_proj", "ffn_up_exps", StoredAs::kSecondHalf, StoredAs::kOddRows, StoredAs::kSecondHalf},
  };
  const auto experts = static_cast<std::uint64_t>(specs.num_experts);
  const auto width = static_cast<std::uint64_t>(specs.width);
  const auto hidden = static_cast<std::uint64_t>(builder.config().hidden_size);
  const bool gguf = builder.config().from_gguf;
  for (const Part& part : kParts) {
    TensorSpec& spec = builder.tensor(TensorKind::kTrunkLinear, {part.role, "", part.gguf}, {experts, width, hidden});
    if (gguf) {
      builder.also(spec, "ffn_gate_up_exps", part.merged, true);
      continue;
    }
    for (const std::string& folder : specs.folders) {
      builder.also(spec, fmt::format("{}{{e}}.{}", folder, part.hf), StoredAs::kPerExpert, true);
      builder.also(spec, folder + "gate_up_proj", specs.interleaved ? part.alternate : part.half, false);
    }
  }
  TensorSpec& down =
      builder.tensor(TensorKind::kTrunkLinear, {"experts.down", "", "ffn_down_exps"}, {experts, hidden, width});
  if (gguf) return;
  for (const std::string& folder : specs.folders) {
    builder.also(down, folder + "{e}.down_proj", StoredAs::kPerExpert, true);
    builder.also(down, folder + "down_proj", StoredAs::kWhole, false);
  }
}

void add_layer_norms(SpecBuilder& builder, std::string_view gguf_ffn_norm, float norm_add) {
  const std::int64_t hidden = builder.config().hidden_size;
  builder.vector({"attn_norm", "input_layernorm", "attn_norm"}, hidden).add = norm_add;
  builder.vector({"ffn_norm", "post_attention_layernorm", gguf_ffn_norm}, hidden).add = norm_add;
}

std::vector<IgnoreRule> common_ignored(const ModelConfig& config) {
  if (config.from_gguf) return {};
  const std::string attention = config.name_prefix + "layers.{n}.self_attn.";
  return {
      {attention + "rotary_emb.inv_freq", "buffer"},
      {attention + "masked_bias", "buffer"},
      {attention + "bias", "buffer"},
      {attention + "k_proj.k_scale", "kv-scale"},
      {attention + "v_proj.v_scale", "kv-scale"},
      {attention + "k_scale", "kv-scale"},
      {attention + "v_scale", "kv-scale"},
      {attention + "kv_scale", "kv-scale"},
  };
}

void ignore_encoders(std::vector<IgnoreRule>& rules) {
  for (const char* vision : {"model.visual.*", "visual.*", "model.vision_tower.*", "vision_tower.*",
                             "model.embed_vision.*", "embed_vision.*", "v.*", "mm.*"}) {
    rules.push_back({vision, "vision"});
  }
  for (const char* audio : {"model.audio_tower.*", "audio_tower.*", "model.embed_audio.*", "embed_audio.*", "a.*"}) {
    rules.push_back({audio, "audio"});
  }
}

}  // namespace vernier
