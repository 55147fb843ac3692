#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/check_args.h"
#include "backend/input_rounding.h"
#include "backend/kv_cell.h"
#include "backend/reference/reference_backend.h"

namespace vernier {
namespace {

/// x * rsqrt(mean(x^2) + eps) * weight over one head, in place.
void normalize_head(std::vector<double>& head, std::span<const float> weight, float eps) {
  double squares = 0.0;
  for (const double x : head) squares += x * x;
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(head.size()) + eps);
  for (std::size_t i = 0; i < head.size(); ++i) head[i] *= factor * (weight.empty() ? 1.0 : weight[i]);
}

void rotate_head(std::vector<double>& head, const RopeTable& rope, std::int64_t position) {
  const std::size_t pairs = rope.inverse_frequencies.size();
  const std::size_t offset = rope.pair_offset != 0 ? static_cast<std::size_t>(rope.pair_offset) : pairs;
  for (std::size_t j = 0; j < pairs; ++j) {
    const double angle = static_cast<double>(position) * rope.inverse_frequencies[j];
    const double cosine = std::cos(angle) * rope.magnitude;
    const double sine = std::sin(angle) * rope.magnitude;
    const bool halves = rope.pairing == RopePairing::kHalves;
    double& first = head[halves ? j : 2 * j];
    double& second = head[halves ? j + offset : 2 * j + 1];
    const double rotated = first * cosine - second * sine;
    second = second * cosine + first * sine;
    first = rotated;
  }
}

/// Norm and rotation of the heads of one row of q or k, in place.
void process_row(const RopeStoreArgs& args, float* row, std::int32_t num_heads, std::span<const float> norm,
                 std::int64_t position) {
  std::vector<double> head(static_cast<std::size_t>(args.head_dim));
  for (std::int64_t h = 0; h < num_heads; ++h) {
    float* values = row + h * args.head_dim;
    std::copy_n(values, args.head_dim, head.begin());
    if (!norm.empty()) normalize_head(head, norm, args.eps);
    if (args.rope != nullptr) rotate_head(head, *args.rope, position);
    for (const double value : head) *values++ = static_cast<float>(value);
  }
}

void store_row(const RopeStoreArgs& args, const SequenceSlice& slice, std::int64_t row, std::int64_t position) {
  std::vector<double> value(static_cast<std::size_t>(args.head_dim));
  for (std::int64_t h = 0; h < args.num_kv_heads; ++h) {
    const std::int64_t at = kv_index(args.kv, slice, position, h);
    std::copy_n(args.v.row(row) + h * args.head_dim, args.head_dim, value.begin());
    if (args.normalize_v) normalize_head(value, {}, args.eps);
    for (std::int64_t d = 0; d < args.head_dim; ++d) {
      store_kv(args.kv, args.kv.keys, at + d, args.k.row(row)[h * args.head_dim + d], args.kv.key_scale);
      store_kv(args.kv, args.kv.values, at + d, static_cast<float>(value[static_cast<std::size_t>(d)]),
               args.kv.value_scale);
    }
  }
}

/// One head of one token: q and y point at [head_dim].
void attend(const AttentionArgs& args, const SequenceSlice& slice, std::int64_t position, std::int64_t head,
            const float* q, float* y) {
  const KvLayer& kv = args.kv;
  const std::int64_t kv_head = head / (args.num_heads / kv.num_kv_heads);
  const std::int64_t first = args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  std::vector<double> weights;
  double largest = args.sinks.empty() ? -std::numeric_limits<double>::infinity()
                                      : static_cast<double>(args.sinks[static_cast<std::size_t>(head)]);
  for (std::int64_t p = first; p <= position; ++p) {
    const std::int64_t at = kv_index(kv, slice, p, kv_head);
    double score = 0.0;
    for (std::int64_t d = 0; d < kv.head_dim; ++d) {
      score += static_cast<double>(q[d]) * load_kv(kv, kv.keys, at + d);
    }
    if (kv.dtype == DType::kF8E4M3) score *= kv.key_scale;
    score *= args.scale;
    if (args.soft_cap > 0.0F) score = args.soft_cap * std::tanh(score / args.soft_cap);
    weights.push_back(score);
    largest = std::max(largest, score);
  }
  double total = args.sinks.empty() ? 0.0 : std::exp(args.sinks[static_cast<std::size_t>(head)] - largest);
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  std::vector<double> sum(static_cast<std::size_t>(kv.head_dim));
  for (std::int64_t p = first; p <= position; ++p) {
    const std::int64_t at = kv_index(kv, slice, p, kv_head);
    for (std::int64_t d = 0; d < kv.head_dim; ++d) {
      sum[static_cast<std::size_t>(d)] += weights[static_cast<std::size_t>(p - first)] * load_kv(kv, kv.values, at + d);
    }
  }
  const double value_scale = kv.dtype == DType::kF8E4M3 ? kv.value_scale : 1.0;
  for (std::size_t d = 0; d < sum.size(); ++d) y[d] = static_cast<float>(sum[d] / total * value_scale);
}

}  // namespace

Status ReferenceBackend::rope_and_store_kv(const RopeStoreArgs& args) {
  VN_TRY(check_args(args));
  for (const SequenceSlice& slice : args.slices) {
    for (std::int64_t t = 0; t < slice.num_tokens; ++t) {
      const std::int64_t row = slice.first_row + t;
      const std::int64_t position = slice.past + t;
      process_row(args, args.q.row(row), args.num_heads, args.q_norm, position);
      if (args.v.data == nullptr) continue;
      process_row(args, args.k.row(row), args.num_kv_heads, args.k_norm, position);
      store_row(args, slice, row, position);
    }
  }
  return {};
}

Status ReferenceBackend::attention(const AttentionArgs& args) {
  VN_TRY(check_args(args));
  const std::int64_t dim = args.kv.head_dim;
  for (const SequenceSlice& slice : args.slices) {
    pool_.parallel_for(std::int64_t{slice.num_tokens} * args.num_heads, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t token = i / args.num_heads;
        const std::int64_t head = i % args.num_heads;
        const std::int64_t row = slice.first_row + token;
        std::vector<float> q(args.q.row(row) + head * dim, args.q.row(row) + (head + 1) * dim);
        for (float& value : q) value = round_input(value, precision_);
        attend(args, slice, slice.past + token, head, q.data(), args.y.row(row) + head * dim);
      }
    });
  }
  return {};
}

}  // namespace vernier
