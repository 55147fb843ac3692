// Grouped-query attention: projections, head norms, rotation, cache, softmax, output projection.
#pragma once

#include <cstdint>
#include <span>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace vernier {

struct AttentionBlock {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  float scale = 0.0F;
  float eps = 0.0F;                 ///< of the head norms
  std::int32_t window = 0;          ///< 0: all keys
  const RopeTable* rope = nullptr;  ///< owned by the model

  Weight q;
  Weight k;
  Weight v;  ///< absent: the raw key projection serves as value (and is normalised as one)
  Weight o;
  std::span<const float> q_bias, k_bias, v_bias, o_bias;  ///< each may be empty
  std::span<const float> q_norm, k_norm;                  ///< each may be empty: no norm
  std::span<const float> sinks;                           ///< [num_heads] or empty
  bool normalize_v = false;
  bool gated = false;   ///< q holds, head by head, the query and a gate: mixed *= sigmoid(gate) (qwen35)
  bool owns_kv = true;  ///< false: reads keys and values that another layer stored

  /// Reads roles q, k, v, o, their biases, the head norms and sinks of the loader's layer, as far as the files hold
  /// them.
  [[nodiscard]] Status load(const WeightLoader& loader);
  void reserve(Workspace& workspace) const;
  /// `kv` is the cache to read, and to fill where owns_kv.
  [[nodiscard]] Status run(const Step& step, const BlockInput& input, const KvLayer& kv,
                           const BlockOutput& output) const;

 private:
  [[nodiscard]] Status project(const Step& step, const BlockInput& input, MatrixView query, MatrixView key,
                               MatrixView value) const;
  /// Half `which` of each head's (query, gate) pair, as [tokens * heads, head_dim].
  [[nodiscard]] MatrixView half_of_pairs(const Step& step, std::int64_t which) const;
};

/// The geometry that most families share, from their configuration; `layer` decides about the window.
[[nodiscard]] AttentionBlock make_attention(const ModelConfig& config, std::int64_t layer, const RopeTable& rope);

}  // namespace vernier
