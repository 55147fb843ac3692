// The interface that every device implements: memory, and about a dozen coarse operations over weights and activations.
// A model composes these operations; it never knows which backend runs them.
//
// Numerics (docs/decisions/numerics.md): activations, norms, softmax, rotary and gating are fp32; under
// Precision::kBf16 the input of each linear is rounded once to bf16 (nearest even) and products accumulate in fp32;
// under kF32 it isn't rounded. Second-level scales are applied in fp32 to the finished sum. A row's result depends on
// no other row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ceilings.h"
#include "backend/copy_lane.h"
#include "backend/memory.h"
#include "backend/ranking.h"
#include "base/result.h"
#include "tensor/weight.h"

namespace vernier {

/// What a linear does with its input before multiplying.
enum class Precision : std::uint8_t { kBf16, kF32 };

// --- what a step computes --------------------------------------------------------------------------------------------

/// The tokens of one sequence within a step: rows [first_row, first_row + num_tokens) of every activation matrix. The
/// tokens stand at positions past .. past + num_tokens - 1 of their sequence; keys of all positions before are cached.
struct SequenceSlice {
  std::int32_t first_row = 0;
  std::int32_t num_tokens = 0;
  std::int32_t past = 0;
  std::span<const std::int32_t> pages;  ///< page of positions [i * page_size, (i + 1) * page_size) of the KV cache
  std::int32_t state_slot = 0;          ///< slot in the recurrent-state cache
};

/// The key and value pages of one layer. Element (page, position in page, kv head, dim) of keys lies at
/// ((page * page_size + position) * num_kv_heads + head) * head_dim + dim; values likewise.
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kBF16;  ///< kBF16, kF32 or kF8E4M3
  std::int32_t page_size = 0;  ///< positions a page
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  float key_scale = 1.0F;    ///< kF8E4M3: stored * scale is the value
  float value_scale = 1.0F;  ///< likewise
};

/// How the two components of a rotated pair lie in a head: (j, j + dims/2), or (2j, 2j + 1) as in permuted GGUF files.
enum class RopePairing : std::uint8_t { kHalves, kInterleaved };

/// Rotary embedding of one kind of layer. Angle of pair j at position p: p * inverse_frequencies[j], computed in
/// double.
struct RopeTable {
  std::vector<double> inverse_frequencies;  ///< [rotary_dims / 2]; empty: no rotation
  float magnitude = 1.0F;                   ///< multiplies cos and sin (YaRN's attention factor)
  RopePairing pairing = RopePairing::kHalves;
  /// kHalves rotates (j, j + pair_offset); 0 means inverse_frequencies.size(). Gemma's proportional rope sets it.
  std::int32_t pair_offset = 0;
};

// --- operations ------------------------------------------------------------------------------------------------------

/// x[i] = weight row of tokens[i] (outer scale applied), times `multiplier`.
struct EmbedArgs {
  std::span<const std::int32_t> tokens;  ///< host memory, each in [0, table.rows)
  const Weight* table = nullptr;         ///< [vocab, dim]
  float multiplier = 1.0F;
  MatrixView x;  ///< out [tokens, dim]
};

/// y = x * rsqrt(mean(x^2) + eps) * weight, each row apart, all in fp32. In place when y.data == x.data.
/// With `residual`, x += residual first and x is written back (the sum is what the next block adds to).
struct RmsNormArgs {
  MatrixView x;                   ///< [tokens, dim]
  std::span<const float> weight;  ///< [dim]; empty: ones. Vectors lie in backend memory, here and below
  float eps = 0.0F;
  MatrixView y;                          ///< out [tokens, dim]
  const MatrixView* residual = nullptr;  ///< [tokens, dim] or null
};

/// One product of a linear: y = outer_scale(x W^T) + bias, or y += that.
struct LinearOutput {
  const Weight* weight = nullptr;  ///< [out, in]
  std::span<const float> bias;     ///< [out] or empty
  MatrixView y;                    ///< [tokens, out]
  bool accumulate = false;         ///< add to y (a residual) instead of overwriting it
};

/// An RMS norm that an operation's input goes through first, as rms_norm() defines it.
struct InputNorm {
  std::span<const float> weight;  ///< [in]; empty: ones
  float eps = 0.0F;
  MatrixView y;  ///< [tokens, in], working memory: what it holds afterwards is undefined. data null: no norm
  [[nodiscard]] bool present() const { return y.data != nullptr; }
};

/// Several products of the same input (q, k, v; gate, up): one pass over x. Members keep their own scales and grids.
struct LinearArgs {
  MatrixView x;  ///< [tokens, in]
  std::span<const LinearOutput> outputs;
  InputNorm norm = {};
};

/// Per-head RMS norms of q and k (when given), rotation of both, then k and v into the cache.
struct RopeStoreArgs {
  MatrixView q;  ///< [tokens, heads * head_dim], rotated in place
  MatrixView k;  ///< [tokens, kv_heads * head_dim], overwritten
  MatrixView v;  ///< [tokens, kv_heads * head_dim]; v.data null: shared KV layer, only q is processed
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::span<const float> q_norm;  ///< [head_dim] or empty: no norm
  std::span<const float> k_norm;  ///< [head_dim] or empty: no norm
  bool normalize_v = false;       ///< RMS norm of v without a weight (Gemma 4)
  float eps = 0.0F;
  const RopeTable* rope = nullptr;
  std::span<const SequenceSlice> slices;
  KvLayer kv;
};

/// Causal attention of each token over its sequence's cached keys (its own included), grouped heads.
/// score = scale * q.k; with soft_cap c > 0: c * tanh(score / c); a window w > 0 keeps keys with q_pos - k_pos < w;
/// a sink adds exp(sink[head]) to the softmax's denominator and nothing else. Accumulation and softmax in fp32.
struct AttentionArgs {
  MatrixView q;  ///< [tokens, heads * head_dim], already rotated
  std::int32_t num_heads = 0;
  float scale = 1.0F;
  float soft_cap = 0.0F;
  std::int32_t window = 0;
  std::span<const float> sinks;  ///< [heads] or empty
  std::span<const SequenceSlice> slices;
  KvLayer kv;
  MatrixView y;  ///< out [tokens, heads * head_dim]
};

enum class Activation : std::uint8_t {
  kSilu,           ///< silu(gate) * up
  kGeluTanh,       ///< gelu_tanh(gate) * up
  kClampedSwiglu,  ///< g = min(gate, limit), u = clamp(up, -limit, limit): g * sigmoid(alpha * g) * (u + 1)
};
struct ActivationSpec {
  Activation kind = Activation::kSilu;
  float alpha = 1.702F;
  float limit = 7.0F;
};
struct GatedActivationArgs {
  ActivationSpec spec;
  MatrixView gate;  ///< [tokens, dim]
  MatrixView up;    ///< [tokens, dim]
  MatrixView y;     ///< out [tokens, dim]; may be `gate`
};

/// A dense MLP: the output of down over act(gate x, up x). What gate.y and up.y hold afterwards is undefined.
struct GatedMlpArgs {
  MatrixView x;       ///< [tokens, dim]
  LinearOutput gate;  ///< y: working memory [tokens, ff], as that of `up`
  LinearOutput up;
  ActivationSpec activation;
  LinearOutput down;  ///< of inputs of width ff
  InputNorm norm = {};
};

/// How router logits become weights of the chosen experts.
enum class RoutingRule : std::uint8_t {
  kSoftmaxAll,       ///< softmax over all experts, take the top k, keep those probabilities
  kSoftmaxSelected,  ///< the same renormalised to sum 1 = softmax over the selected logits
};

/// Chooses experts: logits = router(x) in fp32 on unrounded x, top k by logit, ties to the lower expert.
struct RouteArgs {
  MatrixView x;                    ///< [tokens, dim]
  const Weight* router = nullptr;  ///< [experts, dim]
  std::span<const float> bias;     ///< [experts] or empty: added to the logits
  RoutingRule rule = RoutingRule::kSoftmaxSelected;
  std::span<const float> expert_scale;  ///< [experts] or empty: multiplies the weight of a chosen expert (Gemma 4)
  std::int32_t top_k = 0;
  std::int32_t* ids = nullptr;  ///< out [tokens, top_k], backend memory
  float* weights = nullptr;     ///< out [tokens, top_k], backend memory
  InputNorm norm = {};          ///< of x into norm.y, other memory, which holds the normed rows afterwards
};

/// The experts of one layer: gate[e], up[e] are [ff, dim], down[e] is [dim, ff]. Weights are as Backend::place
/// returned.
struct ExpertWeights {
  std::vector<Weight> gate;
  std::vector<Weight> up;
  std::vector<Weight> down;
  std::vector<std::span<const float>> gate_bias;  ///< an entry an expert, or empty
  std::vector<std::span<const float>> up_bias;
  std::vector<std::span<const float>> down_bias;
};

/// y += sum over j of weights[t, j] * down_e(act(gate_e x, up_e x)) with e = ids[t, j], added in the order of j. An id
/// of -1 adds nothing: that choice is computed elsewhere. Gate and up are scaled before the activation, down (and its
/// bias) before the routing weight.
struct ExpertMlpArgs {
  MatrixView x;  ///< [tokens, dim]
  const ExpertWeights* experts = nullptr;
  ActivationSpec activation;
  std::int32_t top_k = 0;
  const std::int32_t* ids = nullptr;  ///< [tokens, top_k]
  const float* weights = nullptr;     ///< [tokens, top_k]
  MatrixView y;                       ///< in/out [tokens, dim]
};

/// y = alpha * x + beta * y, elementwise.
struct CombineArgs {
  MatrixView x;
  MatrixView y;
  float alpha = 1.0F;
  float beta = 1.0F;
};

/// y = cap * tanh(y / cap), elementwise (final logits of Gemma).
struct SoftCapArgs {
  MatrixView y;  ///< in/out
  float cap = 1.0F;
};

/// y *= sigmoid(gate): elementwise, or each row by its one number where the gate has one column.
struct SigmoidGateArgs {
  MatrixView gate;  ///< [tokens, dim] or [tokens, 1]
  MatrixView y;     ///< in/out [tokens, dim]
};

/// Gated delta net (linear attention with a recurrent state), between its projections. Per token and channel c of qkv:
/// u = silu(sum over j < conv_width of convolution_weight[c, j] * qkv[t - conv_width + 1 + j, c]). From u: q and k per
/// key head, each divided by its L2 norm (eps 1e-6 under the root), q also by sqrt(key_dim); v per value head. With
/// decay = exp(decay_rate * softplus(a + dt_bias)) and beta = sigmoid(b), per value head and state S [key_dim,
/// value_dim]:
///   S = decay * S;  S = S + k (beta * (v - S^T k))^T;  o = S^T q
/// and y = norm * o * rsqrt(mean(o^2) + eps) * silu(z). All in fp32. A sequence's state is read from and left in its
/// slot; the convolution's is its last conv_width - 1 inputs, oldest first. With `past` 0 a slice starts from zeros.
struct GatedDeltaNetArgs {
  MatrixView qkv;  ///< [tokens, 2 * key_heads * key_dim + value_heads * value_dim]
  MatrixView z;    ///< [tokens, value_heads * value_dim]
  MatrixView a;    ///< [tokens, value_heads]
  MatrixView b;    ///< [tokens, value_heads]
  std::int32_t key_heads = 0;
  std::int32_t value_heads = 0;  ///< a multiple of key_heads
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  std::int32_t conv_width = 0;
  bool tiled_heads = false;  ///< value head h uses key head h % key_heads, not h / (value_heads / key_heads)
  std::span<const float> convolution_weight;  ///< [channels, conv_width]
  std::span<const float> decay_rate;          ///< [value_heads]: -exp(A_log)
  std::span<const float> dt_bias;             ///< [value_heads]
  std::span<const float> norm;                ///< [value_dim]
  float eps = 0.0F;
  std::span<const SequenceSlice> slices;
  float* recurrent = nullptr;    ///< [slots, value_heads, key_dim, value_dim]
  float* convolution = nullptr;  ///< [slots, conv_width - 1, channels]
  MatrixView y;                  ///< out [tokens, value_heads * value_dim]

  [[nodiscard]] std::int64_t key_width() const { return std::int64_t{key_heads} * key_dim; }
  [[nodiscard]] std::int64_t value_width() const { return std::int64_t{value_heads} * value_dim; }
  [[nodiscard]] std::int64_t channels() const { return 2 * key_width() + value_width(); }
};

/// The likeliest logits of each row, ordered: the largest first, ties by id. At least one; fewer than `count` where the
/// row has no more, or where so many are alike that a device has no room to order them.
struct RankArgs {
  MatrixView logits;                 ///< [rows, ids], at most kMostLogits ids (odds.h)
  std::span<const RankWish> wishes;  ///< [rows], host memory
  std::int32_t count = 0;            ///< of entries wanted of each row: 1 to kMostRanked
  RankedRow* rows = nullptr;         ///< out [rows], backend memory
  RankedLogit* entries = nullptr;    ///< out [rows, count], backend memory
};

/// A decode step that may be repeated: the operations that it calls, and their arguments, depend on `owner`, on the
/// number of slices, and else only on what `tokens` and `slices` hold.
struct RepeatableStep {
  std::uint64_t owner = 0;                ///< of the memory that the operations use; never given twice
  std::span<const std::int32_t> tokens;   ///< host memory, one a slice
  std::span<const SequenceSlice> slices;  ///< one token each, in row order
  bool overlap = true;                    ///< false, for measurements: nothing begins before what is in front has ended
};

struct MemoryInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;
};

/// A device. One thread drives it at a time; operations are ordered as called and complete at the latest at
/// synchronize(). Operations on zero rows do nothing. Failures (device lost, launch error) come back as kDevice.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Precision precision() const = 0;
  /// True where the backend's memory is the host's.
  [[nodiscard]] virtual bool is_host() const { return false; }
  [[nodiscard]] virtual MemoryInfo memory() const = 0;
  /// Tokens a step from which more of them don't make each much cheaper.
  [[nodiscard]] virtual std::int32_t suitable_batch_tokens() const { return 512; }
  /// Measures the device with as many threads as operations use, in well under a second. Called again and again, in
  /// turn with what is being measured, because machines are shared. Only the cpu can honour kCpu.
  [[nodiscard]] virtual Result<Ceilings> measure_ceilings(BenchClock /*clock*/) { return Ceilings{}; }
  /// kUnsupported with the reason when this backend has no kernel for a format.
  [[nodiscard]] virtual Status supports(FormatId format) const = 0;

  [[nodiscard]] virtual Result<Buffer> allocate(std::size_t size_bytes) = 0;
  /// Makes a host weight ready for this backend: uploads or repacks it, or returns it as it is. The caller may drop the
  /// host bytes only when the result's `owner` differs from the argument's.
  [[nodiscard]] virtual Result<Weight> place(const Weight& host) = 0;
  /// Copies between host and backend memory.
  [[nodiscard]] virtual Status copy_to_device(void* device, const void* host, std::size_t size_bytes) = 0;
  [[nodiscard]] virtual Status copy_to_host(void* host, const void* device, std::size_t size_bytes) = 0;
  [[nodiscard]] virtual Status synchronize() = 0;

  /// What users should know of how this backend runs here, each a sentence: memory that was refused, for example.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }

  /// Calls `work`, which calls operations, or does by other means what it would do. `work` must not synchronise.
  [[nodiscard]] virtual Status run_step(const RepeatableStep& /*step*/, const std::function<Status()>& work) {
    return work();
  }

  // For weights that come and go (placement/). A record is a weight's bytes in host memory, laid out so that a plain
  // copy into backend memory makes the weight usable there. The defaults are in movable_weights.cc.

  /// Host memory from which copies to this backend run beside its work, where the system grants such memory.
  [[nodiscard]] virtual Result<Buffer> allocate_host(std::size_t size_bytes);
  /// Size of a weight's record, a multiple of kRecordAlignment.
  [[nodiscard]] virtual std::uint64_t record_bytes(const Weight& host) const;
  /// Writes a weight's record and returns the weight as it lies there; see moved_weight().
  [[nodiscard]] virtual Result<Weight> pack(const Weight& host, std::byte* record);
  /// A lane of copies into this backend's memory; must not outlive the backend.
  [[nodiscard]] virtual Result<std::unique_ptr<CopyLane>> create_copy_lane();

  [[nodiscard]] virtual Status embed(const EmbedArgs& args) = 0;
  [[nodiscard]] virtual Status rms_norm(const RmsNormArgs& args) = 0;
  [[nodiscard]] virtual Status linear(const LinearArgs& args) = 0;
  [[nodiscard]] virtual Status rope_and_store_kv(const RopeStoreArgs& args) = 0;
  [[nodiscard]] virtual Status attention(const AttentionArgs& args) = 0;
  [[nodiscard]] virtual Status gated_activation(const GatedActivationArgs& args) = 0;
  /// The default calls linear() and gated_activation(); what a backend does instead gives the same bits.
  [[nodiscard]] virtual Status gated_mlp(const GatedMlpArgs& args);
  [[nodiscard]] virtual Status route_experts(const RouteArgs& args) = 0;
  [[nodiscard]] virtual Status expert_mlp(const ExpertMlpArgs& args) = 0;
  [[nodiscard]] virtual Status combine(const CombineArgs& args) = 0;
  [[nodiscard]] virtual Status soft_cap(const SoftCapArgs& args) = 0;
  [[nodiscard]] virtual Status sigmoid_gate(const SigmoidGateArgs& args) = 0;
  [[nodiscard]] virtual Status gated_delta_net(const GatedDeltaNetArgs& args) = 0;
  [[nodiscard]] virtual Status rank_logits(const RankArgs& args) = 0;
};

struct BackendOptions {
  Precision precision = Precision::kBf16;
  std::int32_t num_threads = 0;  ///< 0: all the process may use
  /// Which of several devices of a kind: the INDEX of "cuda:INDEX". The backend refuses one that isn't there.
  std::int32_t device_index = 0;
  /// cpu: the instruction set, as "avx2", to use instead of the best one that the machine has.
  std::string_view cpu_isa;
  bool graphs = true;  ///< cuda: launch repeated decode steps as CUDA graphs
};

/// A backend that this build knows. `unavailable` says in words why it can't run here, or is empty.
struct BackendEntry {
  std::string_view name;
  std::string_view summary;
  std::string (*unavailable)();
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
  /// Lines about the hardware (each GPU with its memory, capability and driver). Null where there is nothing to say:
  /// the host, or a backend that is no part of this build.
  std::string (*details)() = nullptr;
  /// Instruction sets that this machine runs, best first; null where a backend has no choice of them.
  std::vector<std::string_view> (*instruction_sets)() = nullptr;
  bool has_index = false;  ///< there may be several: BackendOptions::device_index counts
};

/// All backends, in the order in which `auto` prefers them (backend_list.cc).
[[nodiscard]] std::span<const BackendEntry> backend_list();

/// Creates a backend by name; "auto" takes the first that is available. "cuda:1" sets BackendOptions::device_index.
/// kInvalidArgument: unknown names, which list the known ones, and malformed or unwanted indices.
[[nodiscard]] Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options);

}  // namespace vernier
