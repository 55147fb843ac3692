#include "backend/check_args.h"

#include <fmt/core.h>

#include <array>
#include <string_view>

#include "backend/odds.h"

namespace vernier {
namespace {

Status require(bool condition, std::string_view op, std::string_view what) {
  if (condition) return {};
  return fail(ErrorCode::kInternal, "{}: {}", op, what);
}

bool is_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols) {
  if (m.rows != rows || m.cols != cols) return false;
  return rows == 0 || (m.data != nullptr && (m.stride >= cols || rows == 1));
}

bool is_matrix(const MatrixView& m) { return is_matrix(m, m.rows, m.cols) && m.rows >= 0 && m.cols > 0; }

bool fits(std::span<const float> vector, std::int64_t size) {
  return vector.empty() || static_cast<std::int64_t>(vector.size()) == size;
}

bool is_weight(const Weight& weight, std::int64_t rows, std::int64_t cols) {
  const auto factors = static_cast<std::int64_t>(weight.outer.values.size());
  return weight.present() && weight.rows == rows && weight.cols == cols && (factors <= 1 || factors == rows);
}

/// The slices lie within the activations and each has pages for all of its positions.
Status check_slices(std::string_view op, std::span<const SequenceSlice> slices, const KvLayer& kv,
                    std::int64_t num_tokens) {
  VN_TRY(require(kv.page_size > 0 && kv.num_kv_heads > 0 && kv.head_dim > 0, op, "the KV layer has no shape"));
  VN_TRY(require(kv.keys != nullptr && kv.values != nullptr, op, "the KV layer has no memory"));
  VN_TRY(require(kv.dtype == DType::kBF16 || kv.dtype == DType::kF32 || kv.dtype == DType::kF8E4M3, op,
                 "the KV layer's dtype is not BF16, F32 or F8_E4M3"));
  for (const SequenceSlice& slice : slices) {
    const bool in_rows =
        slice.first_row >= 0 && slice.num_tokens >= 0 && std::int64_t{slice.first_row} + slice.num_tokens <= num_tokens;
    VN_TRY(require(in_rows, op, "a slice lies outside the activations"));
    const std::int64_t positions = std::int64_t{slice.past} + slice.num_tokens;
    const std::int64_t room = static_cast<std::int64_t>(slice.pages.size()) * kv.page_size;
    VN_TRY(require(slice.past >= 0 && positions <= room, op, "a slice has fewer pages than positions"));
  }
  return {};
}

Status check_experts(const ExpertWeights& experts, std::int64_t dim) {
  const std::size_t count = experts.gate.size();
  const bool same_count = experts.up.size() == count && experts.down.size() == count;
  VN_TRY(require(count > 0 && same_count, "expert_mlp", "gate, up and down have different numbers of experts"));
  const std::int64_t ff = experts.gate[0].rows;
  for (std::size_t e = 0; e < count; ++e) {
    const bool shapes =
        is_weight(experts.gate[e], ff, dim) && is_weight(experts.up[e], ff, dim) && is_weight(experts.down[e], dim, ff);
    VN_TRY(require(shapes, "expert_mlp", "an expert's weights have the wrong shape"));
  }
  const auto biases_fit = [count](const std::vector<std::span<const float>>& biases, std::int64_t size) {
    if (!biases.empty() && biases.size() != count) return false;
    for (const auto& bias : biases) {
      if (!fits(bias, size)) return false;
    }
    return true;
  };
  const bool fit =
      biases_fit(experts.gate_bias, ff) && biases_fit(experts.up_bias, ff) && biases_fit(experts.down_bias, dim);
  return require(fit, "expert_mlp", "a bias has the wrong length");
}

}  // namespace

Status check_args(const EmbedArgs& args) {
  constexpr std::string_view kOp = "embed";
  VN_TRY(require(args.table != nullptr && args.table->present(), kOp, "no table"));
  const auto num_tokens = static_cast<std::int64_t>(args.tokens.size());
  VN_TRY(require(is_matrix(args.x, num_tokens, args.table->cols), kOp, "x doesn't fit tokens and table"));
  for (const std::int32_t token : args.tokens) {
    if (token < 0 || token >= args.table->rows) {
      return fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", token, args.table->rows);
    }
  }
  return {};
}

Status check_args(const RmsNormArgs& args) {
  constexpr std::string_view kOp = "rms_norm";
  VN_TRY(require(is_matrix(args.x), kOp, "x is no matrix"));
  VN_TRY(require(is_matrix(args.y, args.x.rows, args.x.cols), kOp, "x and y differ in shape"));
  VN_TRY(require(fits(args.weight, args.x.cols), kOp, "weight and x differ in length"));
  const bool residual_fits = args.residual == nullptr || is_matrix(*args.residual, args.x.rows, args.x.cols);
  return require(residual_fits, kOp, "x and residual differ in shape");
}

Status check_args(const LinearArgs& args) {
  constexpr std::string_view kOp = "linear";
  VN_TRY(require(is_matrix(args.x), kOp, "x is no matrix"));
  for (const LinearOutput& output : args.outputs) {
    VN_TRY(require(output.weight != nullptr, kOp, "an output has no weight"));
    const Weight& weight = *output.weight;
    VN_TRY(require(is_weight(weight, weight.rows, args.x.cols), kOp, "weight and x differ in width"));
    VN_TRY(require(is_matrix(output.y, args.x.rows, weight.rows), kOp, "y doesn't fit x and weight"));
    VN_TRY(require(fits(output.bias, weight.rows), kOp, "bias and weight differ in length"));
  }
  return args.norm.present() ? check_args(norm_of(args)) : Status();
}

Status check_args(const RopeStoreArgs& args) {
  constexpr std::string_view kOp = "rope_and_store_kv";
  const std::int64_t rows = args.q.rows;
  VN_TRY(require(args.num_heads > 0 && args.head_dim > 0, kOp, "no heads"));
  VN_TRY(require(is_matrix(args.q, rows, std::int64_t{args.num_heads} * args.head_dim), kOp, "q has the wrong shape"));
  VN_TRY(require(fits(args.q_norm, args.head_dim) && fits(args.k_norm, args.head_dim), kOp,
                 "a norm and head_dim differ in length"));
  if (args.rope != nullptr) {
    const auto pairs = static_cast<std::int64_t>(args.rope->inverse_frequencies.size());
    const bool halves = args.rope->pairing == RopePairing::kHalves;
    const std::int64_t offset = args.rope->pair_offset != 0 ? args.rope->pair_offset : pairs;
    const std::int64_t last = halves ? offset + pairs : 2 * pairs;
    VN_TRY(require(last <= args.head_dim && (!halves || offset >= pairs), kOp, "the rotation is wider than a head"));
  }
  VN_TRY(check_slices(kOp, args.slices, args.kv, rows));
  if (args.v.data == nullptr) return {};
  const std::int64_t kv_cols = std::int64_t{args.num_kv_heads} * args.head_dim;
  VN_TRY(
      require(is_matrix(args.k, rows, kv_cols) && is_matrix(args.v, rows, kv_cols), kOp, "k or v has the wrong shape"));
  return require(args.kv.num_kv_heads == args.num_kv_heads && args.kv.head_dim == args.head_dim, kOp,
                 "k and the KV layer differ in shape");
}

Status check_args(const AttentionArgs& args) {
  constexpr std::string_view kOp = "attention";
  VN_TRY(check_slices(kOp, args.slices, args.kv, args.q.rows));
  VN_TRY(require(args.num_heads > 0 && args.num_heads % args.kv.num_kv_heads == 0, kOp,
                 "heads are no multiple of the KV heads"));
  const std::int64_t cols = std::int64_t{args.num_heads} * args.kv.head_dim;
  VN_TRY(require(is_matrix(args.q, args.q.rows, cols) && is_matrix(args.y, args.q.rows, cols), kOp,
                 "q or y has the wrong shape"));
  return require(args.window >= 0 && fits(args.sinks, args.num_heads), kOp, "window or sinks are wrong");
}

Status check_args(const GatedActivationArgs& args) {
  const bool fit = is_matrix(args.gate) && is_matrix(args.up, args.gate.rows, args.gate.cols) &&
                   is_matrix(args.y, args.gate.rows, args.gate.cols);
  return require(fit, "gated_activation", "gate, up and y differ in shape");
}

Status check_args(const GatedMlpArgs& args) {
  const std::array<LinearOutput, 2> first = {args.gate, args.up};
  VN_TRY(check_args(LinearArgs{args.x, first, args.norm}));
  VN_TRY(check_args(GatedActivationArgs{args.activation, args.gate.y, args.up.y, args.gate.y}));
  return check_args(LinearArgs{args.gate.y, std::span(&args.down, 1)});
}

Status check_args(const RouteArgs& args) {
  constexpr std::string_view kOp = "route_experts";
  VN_TRY(require(is_matrix(args.x) && args.router != nullptr, kOp, "no x or no router"));
  const std::int64_t experts = args.router->rows;
  VN_TRY(require(is_weight(*args.router, experts, args.x.cols), kOp, "router and x differ in width"));
  VN_TRY(require(args.top_k > 0 && args.top_k <= experts, kOp, "top_k is outside the experts"));
  VN_TRY(require(fits(args.bias, experts) && fits(args.expert_scale, experts), kOp, "a vector has the wrong length"));
  if (args.norm.present()) {
    VN_TRY(require(args.norm.y.data != args.x.data, kOp, "rows can't be normed in place"));
    VN_TRY(check_args(norm_of(args)));
  }
  return require(args.x.rows == 0 || (args.ids != nullptr && args.weights != nullptr), kOp, "no room for the result");
}

Status check_args(const ExpertMlpArgs& args) {
  constexpr std::string_view kOp = "expert_mlp";
  VN_TRY(require(is_matrix(args.x) && args.experts != nullptr, kOp, "no x or no experts"));
  VN_TRY(require(is_matrix(args.y, args.x.rows, args.x.cols), kOp, "x and y differ in shape"));
  VN_TRY(require(args.top_k > 0, kOp, "top_k is not positive"));
  VN_TRY(require(args.x.rows == 0 || (args.ids != nullptr && args.weights != nullptr), kOp, "no routing"));
  return check_experts(*args.experts, args.x.cols);
}

Status check_args(const CombineArgs& args) {
  return require(is_matrix(args.x) && is_matrix(args.y, args.x.rows, args.x.cols), "combine",
                 "x and y differ in shape");
}

Status check_args(const SoftCapArgs& args) {
  return require(is_matrix(args.y) && args.cap > 0.0F, "soft_cap", "y is no matrix or the cap not above 0");
}

Status check_args(const SigmoidGateArgs& args) {
  const bool fits_y = args.gate.cols == 1 || args.gate.cols == args.y.cols;
  return require(is_matrix(args.y) && is_matrix(args.gate) && args.gate.rows == args.y.rows && fits_y, "sigmoid_gate",
                 "gate doesn't fit y");
}

Status check_args(const GatedDeltaNetArgs& args) {
  constexpr std::string_view kOp = "gated_delta_net";
  const std::int64_t rows = args.qkv.rows;
  VN_TRY(require(args.key_heads > 0 && args.key_dim > 0 && args.value_dim > 0 && args.conv_width > 1, kOp, "no shape"));
  VN_TRY(require(args.value_heads > 0 && args.value_heads % args.key_heads == 0, kOp,
                 "value heads are no multiple of the key heads"));
  VN_TRY(require(is_matrix(args.qkv, rows, args.channels()) && is_matrix(args.z, rows, args.value_width()) &&
                     is_matrix(args.y, rows, args.value_width()),
                 kOp, "qkv, z or y has the wrong shape"));
  VN_TRY(require(is_matrix(args.a, rows, args.value_heads) && is_matrix(args.b, rows, args.value_heads), kOp,
                 "a or b has the wrong shape"));
  const auto size = [](std::span<const float> vector) { return static_cast<std::int64_t>(vector.size()); };
  VN_TRY(require(size(args.convolution_weight) == args.channels() * args.conv_width &&
                     size(args.decay_rate) == args.value_heads && size(args.dt_bias) == args.value_heads &&
                     size(args.norm) == args.value_dim,
                 kOp, "a vector has the wrong length"));
  for (const SequenceSlice& slice : args.slices) {
    const bool in_rows =
        slice.first_row >= 0 && slice.num_tokens >= 0 && std::int64_t{slice.first_row} + slice.num_tokens <= rows;
    VN_TRY(require(in_rows && slice.state_slot >= 0, kOp, "a slice lies outside the activations"));
  }
  return require(args.recurrent != nullptr && args.convolution != nullptr, kOp, "no state memory");
}

Status check_args(const RankArgs& args) {
  constexpr std::string_view kOp = "rank_logits";
  VN_TRY(require(is_matrix(args.logits) && args.logits.cols <= kMostLogits, kOp, "logits are no matrix or too many"));
  VN_TRY(require(static_cast<std::int64_t>(args.wishes.size()) == args.logits.rows, kOp, "not a wish a row"));
  VN_TRY(require(args.count > 0 && args.count <= kMostRanked, kOp, "too many or no entries a row"));
  return require(args.logits.rows == 0 || (args.rows != nullptr && args.entries != nullptr), kOp,
                 "no room for the result");
}

}  // namespace vernier
