// What a model needs from a checkpoint, said by the model in a table: one TensorSpec a tensor, with all the ways in
// which published files spell it. The resolver (weight_set.h) finds them, builds Weights and accounts for the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vernier {

enum class TensorKind : std::uint8_t {
  kVector,       ///< norm weights, biases, sinks, scalars: becomes fp32, never quantised
  kTrunkLinear,  ///< a projection that a quantisation config covers (attention, MLP, experts, in/out projections)
  kOtherLinear,  ///< routers, gates, MTP: any format, never held against the config
  kEmbedding,
  kHead,
  kConvolution,  ///< [channels, 1, width] or [channels, width]; becomes fp32
  kCacheScale,   ///< one positive number, [] or [1], of an FP8 KV cache: looked for where ResolveOptions asks
};

/// How a stored tensor relates to the wanted one.
enum class StoredAs : std::uint8_t {
  kWhole,       ///< as it is; an expert bank as one [experts, rows, cols] tensor
  kPerExpert,   ///< one tensor an expert; "{e}" in the name stands for its number
  kFirstHalf,   ///< the first half of the rows (of each expert) of a fused tensor
  kSecondHalf,  ///< the second half
  kEvenRows,    ///< rows 0, 2, 4, ... of a fused tensor
  kOddRows,     ///< rows 1, 3, 5, ...
};

/// One published spelling. Names are complete stems: "model.layers.0.mlp.gate_proj", "blk.0.ffn_gate"; the dialect adds
/// ".weight", "_packed" and so on. `suffixed` false: the name is the whole tensor name (fused expert tensors, biases).
struct Spelling {
  std::string name;
  StoredAs stored_as = StoredAs::kWhole;
  bool suffixed = true;
};

struct TensorSpec {
  std::string role;  ///< the model's own name: "layers.0.attn_q"
  TensorKind kind = TensorKind::kTrunkLinear;
  /// Logical: [n] vector, [rows, cols], or [experts, rows, cols] (biases of experts: a kVector [experts, n]). Stored
  /// vectors, and matrices of one row, may have dimensions of 1 more or fewer.
  std::vector<std::uint64_t> shape;
  std::vector<Spelling> spellings;  ///< tried in order; exactly one must match
  /// Absence is an error. Specs with `mtp` form a group: they are required as soon as one of them is found.
  bool required = true;
  std::int32_t layer = -1;  ///< for messages and memory plans; -1: none. MTP layers count on from the trunk
  bool mtp = false;
  float add = 0.0F;  ///< kVector: added to each stored value (norm weights stored as w - 1)
  /// kHead, optional: the role whose values a stored copy is expected to repeat. A copy with the same bytes is read
  /// past
  /// ("tied-head"), one that differs is used, with a warning.
  std::string tied_to;
};

/// A tensor that the architecture knows but doesn't use, and why: "vision", "kv-shared", ... A trailing '*' in
/// `pattern` matches any rest; "{n}" matches a number.
struct IgnoreRule {
  std::string pattern;
  std::string reason;
};

}  // namespace vernier
