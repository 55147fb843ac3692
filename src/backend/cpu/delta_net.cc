// The gated delta net on the CPU: a convolution over channels, then the recurrence, which threads share by sequences
// and value heads. A head's state stays in a near cache while its tokens pass by, so a prompt costs arithmetic and a
// decode step one reading and writing of the states. (A chunked form with matrix products would save a quarter of the
// arithmetic at most, in fp32, and cost as much in triangular solves.)
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"

namespace vernier {
namespace {

using vernier_isa::Kernels;

/// Tokens of a head handled at a time: bounds scratch memory and changes no number.
constexpr std::int64_t kChunk = 32;
/// Channels that a thread convolves at a time.
constexpr std::int64_t kChannels = 256;

/// Floats from one token's convolved channels to the next's: not a power of two, or tokens would meet in a cache's
/// sets.
std::int64_t convolved_stride(const GatedDeltaNetArgs& args) { return (args.channels() + 15) / 16 * 16 + 16; }

/// log(1 + exp(x)) without overflow.
float softplus(float x) { return x > 0.0F ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

/// What a worker needs for kChunk tokens of a head.
struct HeadScratch {
  float* room;
  float* q;
  float* k;
  float* out;
  float* decay;
  float* beta;
  float* key_query;

  [[nodiscard]] static std::int64_t size(const GatedDeltaNetArgs& args) {
    const std::int64_t chunk = kChunk * (2 * std::int64_t{args.key_dim} + args.value_dim + 3);
    return (std::int64_t{args.key_dim} * vernier_isa::kDeltaNetRoom + chunk + 15) / 16 * 16;
  }
  HeadScratch(const GatedDeltaNetArgs& args, float* memory)
      : room(memory),
        q(room + args.key_dim * vernier_isa::kDeltaNetRoom),
        k(q + kChunk * args.key_dim),
        out(k + kChunk * args.key_dim),
        decay(out + kChunk * args.value_dim),
        beta(decay + kChunk),
        key_query(beta + kChunk) {}
};

/// y = x / |x| * factor
void normalize_l2(const Kernels& kernels, const float* x, std::int64_t size, float factor, float* y) {
  kernels.scale(x, factor / std::sqrt(kernels.sum_of_squares(x, size) + 1e-6F), nullptr, size, y);
}

/// A value head's state, [key_dim, value_dim].
float* state_of(const GatedDeltaNetArgs& args, const SequenceSlice& slice, std::int64_t head) {
  return args.recurrent + (std::int64_t{slice.state_slot} * args.value_heads + head) * args.key_dim * args.value_dim;
}
void clear_state(const GatedDeltaNetArgs& args, const SequenceSlice& slice, std::int64_t head) {
  std::fill_n(state_of(args, slice, head), std::int64_t{args.key_dim} * args.value_dim, 0.0F);
}

/// Tokens [begin, begin + count) of a slice for one value head; `convolved` is the slice's first row.
// NOLINTNEXTLINE(readability-function-size): which tokens of what, and where
void run_chunk(const Kernels& kernels, const GatedDeltaNetArgs& args, const SequenceSlice& slice, std::int64_t head,
               Range tokens, const float* convolved, const HeadScratch& scratch) {
  const std::int64_t key_head = args.tiled_heads ? head % args.key_heads : head / (args.value_heads / args.key_heads);
  const std::int64_t stride = convolved_stride(args);
  const float* v = convolved + tokens.begin * stride + 2 * args.key_width() + head * args.value_dim;
  const auto h = static_cast<std::size_t>(head);
  const float query_scale = 1.0F / std::sqrt(static_cast<float>(args.key_dim));
  const std::int64_t count = tokens.end - tokens.begin;
  for (std::int64_t t = 0; t < count; ++t) {
    const float* mixed = convolved + (tokens.begin + t) * stride + key_head * args.key_dim;
    const std::int64_t row = slice.first_row + tokens.begin + t;
    float* q = scratch.q + t * args.key_dim;
    float* k = scratch.k + t * args.key_dim;
    normalize_l2(kernels, mixed, args.key_dim, query_scale, q);
    normalize_l2(kernels, mixed + args.key_width(), args.key_dim, 1.0F, k);
    scratch.key_query[t] = kernels.dot(k, q, args.key_dim);
    scratch.decay[t] = std::exp(args.decay_rate[h] * softplus(args.a.row(row)[head] + args.dt_bias[h]));
    scratch.beta[t] = 1.0F / (1.0F + std::exp(-args.b.row(row)[head]));
  }
  kernels.delta_net({.q = scratch.q,
                     .k = scratch.k,
                     .v = v,
                     .v_stride = stride,
                     .decay = scratch.decay,
                     .beta = scratch.beta,
                     .key_query = scratch.key_query,
                     .tokens = count,
                     .key_dim = args.key_dim,
                     .value_dim = args.value_dim,
                     .state = state_of(args, slice, head),
                     .room = scratch.room,
                     .out = scratch.out});
  constexpr vernier_isa::Gate kSilu = {vernier_isa::GateKind::kSilu, 0.0F, 0.0F};
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t row = slice.first_row + tokens.begin + t;
    float* out = scratch.out + t * args.value_dim;
    const float mean = kernels.sum_of_squares(out, args.value_dim) / static_cast<float>(args.value_dim);
    kernels.scale(out, 1.0F / std::sqrt(mean + args.eps), args.norm.data(), args.value_dim, out);
    kernels.activate(kSilu, args.z.row(row) + head * args.value_dim, out, args.value_dim,
                     args.y.row(row) + head * args.value_dim);
  }
}

/// The inputs of a slice's convolutions: those kept from before, then its own.
void find_inputs(const GatedDeltaNetArgs& args, const SequenceSlice& slice, const float** rows) {
  const std::int64_t past = args.conv_width - 1;
  float* state = args.convolution + slice.state_slot * past * args.channels();
  if (slice.past == 0 && slice.num_tokens > 0) std::fill_n(state, past * args.channels(), 0.0F);
  for (std::int64_t j = 0; j < past; ++j) *rows++ = state + j * args.channels();
  for (std::int64_t t = 0; t < slice.num_tokens; ++t) *rows++ = args.qkv.row(slice.first_row + t);
}

/// Keeps channels [begin, end) of the last inputs for the next step. Those kept before only move towards the front.
void keep_inputs(const GatedDeltaNetArgs& args, const SequenceSlice& slice, const float* const* rows, Range range) {
  if (slice.num_tokens == 0) return;
  const std::int64_t past = args.conv_width - 1;
  const auto bytes = static_cast<std::size_t>(range.end - range.begin) * sizeof(float);
  float* state = args.convolution + slice.state_slot * past * args.channels() + range.begin;
  for (std::int64_t j = 0; j < past; ++j) {
    std::memcpy(state + j * args.channels(), rows[slice.num_tokens + j] + range.begin, bytes);
  }
}

}  // namespace

Status CpuBackend::gated_delta_net(const GatedDeltaNetArgs& args) {
  VN_TRY(check_args(args));
  if (args.conv_width > vernier_isa::kMaxConvolution) return HostBackend::gated_delta_net(args);
  const std::int64_t channels = args.channels();
  const std::int64_t stride = convolved_stride(args);
  const std::int64_t past = args.conv_width - 1;
  const auto num_slices = static_cast<std::int64_t>(args.slices.size());
  // Slices one after another: tokens before each, and where its list of inputs begins.
  std::vector<std::int64_t> first(args.slices.size() + 1, 0);
  for (std::size_t s = 0; s < args.slices.size(); ++s) first[s + 1] = first[s] + args.slices[s].num_tokens;
  const std::int64_t tokens = first.back();
  VN_ASSIGN(float* convolved, convolved_.get(static_cast<std::size_t>(tokens * stride)));
  VN_ASSIGN(const float** inputs, pointers_.get(static_cast<std::size_t>(tokens + num_slices * past)));
  const auto inputs_of = [&](std::int64_t s) { return inputs + first[static_cast<std::size_t>(s)] + s * past; };
  for (std::int64_t s = 0; s < num_slices; ++s) {
    find_inputs(args, args.slices[static_cast<std::size_t>(s)], inputs_of(s));
  }

  const std::int64_t pieces = (channels + kChannels - 1) / kChannels;
  const auto convolve = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t s = i / pieces;
      const SequenceSlice& slice = args.slices[static_cast<std::size_t>(s)];
      const Range range{i % pieces * kChannels, std::min(i % pieces * kChannels + kChannels, channels)};
      for (std::int64_t t = 0; t < slice.num_tokens; t += kChunk) {
        kernels_.convolve({.rows = inputs_of(s) + t,
                           .tokens = std::min<std::int64_t>(kChunk, slice.num_tokens - t),
                           .width = args.conv_width,
                           .weights = args.convolution_weight.data(),
                           .begin = range.begin,
                           .end = range.end,
                           .out = convolved + (first[static_cast<std::size_t>(s)] + t) * stride,
                           .out_stride = stride});
      }
      keep_inputs(args, slice, inputs_of(s), range);
    }
  };
  pool_.parallel_for(num_slices * pieces, convolve, 2);

  const std::int64_t part = HeadScratch::size(args);
  VN_ASSIGN(float* scratch, worker_floats_.get(static_cast<std::size_t>(part * pool_.size())));
  const auto run_heads = [&](std::int64_t begin, std::int64_t end, int worker) {
    const HeadScratch own(args, scratch + part * worker);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto s = static_cast<std::size_t>(i / args.value_heads);
      const SequenceSlice& slice = args.slices[s];
      if (slice.past == 0 && slice.num_tokens > 0) clear_state(args, slice, i % args.value_heads);
      for (std::int64_t t = 0; t < slice.num_tokens; t += kChunk) {
        const Range chunk{t, std::min<std::int64_t>(t + kChunk, slice.num_tokens)};
        run_chunk(kernels_, args, slice, i % args.value_heads, chunk, convolved + first[s] * stride, own);
      }
    }
  };
  pool_.parallel_for(num_slices * args.value_heads, run_heads);
  return {};
}

}  // namespace vernier
