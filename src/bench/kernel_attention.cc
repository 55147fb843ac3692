// Attention and the gated delta net: what reads caches and states instead of weights.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "bench/kernel_cases.h"
#include "bench/random.h"
#include "format/scalar_codecs.h"

namespace vernier::bench {
namespace {

constexpr std::int32_t kPageSize = 32;
constexpr std::uint64_t kMaxPages = 1 << 20;

struct HeadShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t dim = 0;
};
constexpr HeadShape kUsualHeads = {32, 8, 128};
constexpr HeadShape kWideHeads = {16, 2, 512};  ///< of layers that see everything, in a model whose others don't

/// `sequences` sequences of `tokens` tokens behind `past` cached ones.
struct AttentionLoad {
  std::int32_t sequences = 1;
  std::int32_t tokens = 1;
  std::int32_t past = 0;
};

/// A pool of pages in which successive calls take successive stretches.
struct PagePool {
  std::shared_ptr<Buffer> keys;
  std::shared_ptr<Buffer> values;
  std::shared_ptr<std::vector<std::int32_t>> order;  ///< 0, 1, 2, ...
  DType dtype = DType::kBF16;
  HeadShape heads;

  [[nodiscard]] KvLayer layer() const {
    return {.keys = keys->data(),
            .values = values->data(),
            .dtype = dtype,
            .page_size = kPageSize,
            .num_kv_heads = heads.kv_heads,
            .head_dim = heads.dim};
  }
};

std::vector<std::byte> cache_noise(DType dtype) {
  Random random(3);
  const std::size_t width = dtype_bits(dtype) / 8;
  std::vector<std::byte> bytes(1U << 20U);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    const float value = random.normal();
    const std::uint16_t half = BF16Codec::encode(value);
    std::memcpy(bytes.data() + at, width == 4 ? static_cast<const void*>(&value) : &half, width);
  }
  return bytes;
}

Result<PagePool> make_pages(const CaseContext& context, DType dtype, const HeadShape& heads, std::int32_t at_least) {
  const auto page_numbers = static_cast<std::uint64_t>(kPageSize * heads.kv_heads * heads.dim);
  const std::uint64_t page_bytes = page_numbers * (dtype_bits(dtype) / 8);
  const std::uint64_t pages = std::clamp<std::uint64_t>(context.working_set / (2 * page_bytes),
                                                        static_cast<std::uint64_t>(at_least), kMaxPages);
  PagePool pool;
  pool.dtype = dtype;
  pool.heads = heads;
  const std::vector<std::byte> noise = cache_noise(dtype);
  VN_ASSIGN(pool.keys, repeated_bytes(*context.backend, noise, pages * page_bytes));
  VN_ASSIGN(pool.values, repeated_bytes(*context.backend, noise, pages * page_bytes));
  pool.order = std::make_shared<std::vector<std::int32_t>>(pages);
  std::iota(pool.order->begin(), pool.order->end(), 0);
  return pool;
}

KernelCase attention_case(Backend& backend, const PagePool& pool, const AttentionLoad& load,
                          const std::shared_ptr<Buffer>& q, const std::shared_ptr<Buffer>& y) {
  const std::int32_t pages = (load.past + load.tokens + kPageSize - 1) / kPageSize;
  const double tokens = load.tokens;
  const HeadShape heads = pool.heads;
  const double position_bytes = 0.25 * heads.kv_heads * heads.dim * dtype_bits(pool.dtype);  // keys and values
  KernelCase one;
  one.op = load.tokens == 1 ? "attention" : "prefill";
  one.format = dtype_name(pool.dtype);
  one.shape = load.tokens == 1 ? fmt::format("{} x {}", load.sequences, load.past + 1) : fmt::format("{}", load.tokens);
  if (heads.dim != kUsualHeads.dim) one.shape += fmt::format(", heads of {}", heads.dim);
  one.tokens = std::int64_t{load.sequences} * load.tokens;
  one.bytes = load.sequences * (load.past + tokens) * position_bytes;
  one.flops = load.sequences * 4.0 * heads.heads * heads.dim * (tokens * load.past + tokens * (tokens + 1.0) / 2.0);
  one.copies = std::max<std::int64_t>(static_cast<std::int64_t>(pool.order->size()) / (pages * load.sequences), 1);
  const std::int64_t copies = one.copies;
  const std::int64_t cols = std::int64_t{heads.heads} * heads.dim;
  one.run = [&backend, pool, load, q, y, pages, copies, cols](std::int64_t call) {
    std::vector<SequenceSlice> slices;
    const auto first = static_cast<std::size_t>(call % copies) * static_cast<std::size_t>(pages * load.sequences);
    for (std::int32_t i = 0; i < load.sequences; ++i) {
      const std::span<const std::int32_t> own(pool.order->data() + first + static_cast<std::size_t>(i * pages),
                                              static_cast<std::size_t>(pages));
      slices.push_back({i * load.tokens, load.tokens, load.past, own, 0});
    }
    AttentionArgs args;
    args.q = matrix_of(*q, std::int64_t{load.sequences} * load.tokens, cols);
    args.num_heads = pool.heads.heads;
    args.scale = 0.088F;
    args.slices = slices;
    args.kv = pool.layer();
    args.y = matrix_of(*y, args.q.rows, cols);
    return backend.attention(args);
  };
  return one;
}

// --- gated delta net -------------------------------------------------------------------------------------------------

constexpr std::int32_t kStateDim = 128;
constexpr std::int32_t kKeyHeads = 16;
constexpr std::int32_t kValueHeads = 32;
constexpr std::int32_t kConvolution = 4;
constexpr std::int64_t kChannels = std::int64_t{2 * kKeyHeads + kValueHeads} * kStateDim;
constexpr std::int64_t kStateFloats = std::int64_t{kValueHeads} * kStateDim * kStateDim;
constexpr std::int64_t kInputFloats = (kConvolution - 1) * kChannels;

struct NetOperands {
  std::shared_ptr<Buffer> qkv, z, a, b, y, convolution_weight, per_head, norm, recurrent, convolution;
  std::int64_t slots = 0;
};

std::span<const float> floats_of(const Buffer& buffer, std::int64_t count) {
  return {static_cast<const float*>(buffer.data()), static_cast<std::size_t>(count)};
}

Result<NetOperands> make_net(const CaseContext& context, std::int64_t tokens) {
  Backend& backend = *context.backend;
  NetOperands net;
  net.slots = static_cast<std::int64_t>(context.working_set / (kStateFloats * sizeof(float))) + 16;
  VN_ASSIGN(net.qkv, random_floats(backend, tokens * kChannels));
  VN_ASSIGN(net.z, random_floats(backend, tokens * kValueHeads * kStateDim));
  VN_ASSIGN(net.a, random_floats(backend, tokens * kValueHeads));
  VN_ASSIGN(net.b, random_floats(backend, tokens * kValueHeads));
  VN_ASSIGN(net.y, random_floats(backend, tokens * kValueHeads * kStateDim));
  VN_ASSIGN(net.convolution_weight, random_floats(backend, kChannels * kConvolution, 0.5F));
  std::vector<std::byte> minus_one(kValueHeads * sizeof(float));
  for (std::int32_t i = 0; i < kValueHeads; ++i) {
    const float value = -1.0F;
    std::memcpy(minus_one.data() + static_cast<std::size_t>(i) * sizeof(float), &value, sizeof(value));
  }
  VN_ASSIGN(net.per_head, repeated_bytes(backend, minus_one, minus_one.size()));
  VN_ASSIGN(net.norm, random_floats(backend, kStateDim));
  VN_ASSIGN(net.recurrent, random_floats(backend, net.slots * kStateFloats, 0.1F));
  VN_ASSIGN(net.convolution, random_floats(backend, net.slots * kInputFloats));
  return net;
}

KernelCase net_case(Backend& backend, const NetOperands& net, std::int32_t sequences, std::int32_t tokens) {
  KernelCase one;
  one.op = "delta-net";
  one.format = "f32";
  one.shape = fmt::format("{} x {}", sequences, tokens);
  one.tokens = std::int64_t{sequences} * tokens;
  one.bytes = 2.0 * sizeof(float) * sequences * static_cast<double>(kStateFloats + kInputFloats);
  // Decay, S^T k, the outer product and S^T q: one, two, two and two operations an element of the state.
  one.flops = 7.0 * static_cast<double>(one.tokens) * static_cast<double>(kStateFloats);
  one.copies = net.slots / sequences;
  const std::int64_t copies = one.copies;
  one.run = [&backend, net, sequences, tokens, copies](std::int64_t call) {
    const std::int64_t rows = std::int64_t{sequences} * tokens;
    std::vector<SequenceSlice> slices;
    slices.reserve(static_cast<std::size_t>(sequences));
    for (std::int32_t i = 0; i < sequences; ++i) {
      slices.push_back({i * tokens, tokens, 64, {}, static_cast<std::int32_t>(call % copies) * sequences + i});
    }
    GatedDeltaNetArgs args;
    args.qkv = matrix_of(*net.qkv, rows, kChannels);
    args.z = matrix_of(*net.z, rows, kValueHeads * kStateDim);
    args.a = matrix_of(*net.a, rows, kValueHeads);
    args.b = matrix_of(*net.b, rows, kValueHeads);
    args.key_heads = kKeyHeads;
    args.value_heads = kValueHeads;
    args.key_dim = args.value_dim = kStateDim;
    args.conv_width = kConvolution;
    args.convolution_weight = floats_of(*net.convolution_weight, kChannels * kConvolution);
    args.decay_rate = args.dt_bias = floats_of(*net.per_head, kValueHeads);
    args.norm = floats_of(*net.norm, kStateDim);
    args.eps = 1e-6F;
    args.slices = slices;
    args.recurrent = static_cast<float*>(net.recurrent->data());
    args.convolution = static_cast<float*>(net.convolution->data());
    args.y = matrix_of(*net.y, rows, kValueHeads * kStateDim);
    return backend.gated_delta_net(args);
  };
  return one;
}

}  // namespace

Result<KernelGroup> attention_cases(const CaseContext& context, DType kv_dtype) {
  constexpr AttentionLoad kLoads[] = {{1, 1, 1023}, {1, 1, 8191}, {16, 1, 2047}, {1, 512, 0}, {1, 4096, 0}};
  constexpr AttentionLoad kWideLoads[] = {{1, 1, 8191}, {1, 1, 31999}, {1, 2048, 0}};
  constexpr std::int32_t kMostTokens = 4096;
  constexpr std::int32_t kMostPages = 16 * 2048 / kPageSize;
  constexpr std::int64_t kMostFloats = std::int64_t{kMostTokens} * kUsualHeads.heads * kUsualHeads.dim;
  static_assert(kMostFloats >= std::int64_t{2048} * kWideHeads.heads * kWideHeads.dim);
  VN_ASSIGN(const PagePool pool, make_pages(context, kv_dtype, kUsualHeads, kMostPages));
  VN_ASSIGN(const PagePool wide_pool, make_pages(context, kv_dtype, kWideHeads, kMostPages));
  VN_ASSIGN(const auto q, random_floats(*context.backend, kMostFloats));
  VN_ASSIGN(const auto y, random_floats(*context.backend, kMostFloats));
  KernelGroup group;
  for (const AttentionLoad& load : kLoads) group.push_back(attention_case(*context.backend, pool, load, q, y));
  for (const AttentionLoad& load : kWideLoads) group.push_back(attention_case(*context.backend, wide_pool, load, q, y));
  return group;
}

Result<KernelGroup> delta_net_cases(const CaseContext& context) {
  VN_ASSIGN(const NetOperands net, make_net(context, 512));
  KernelGroup group;
  group.push_back(net_case(*context.backend, net, 1, 1));
  group.push_back(net_case(*context.backend, net, 16, 1));
  group.push_back(net_case(*context.backend, net, 1, 512));
  return group;
}

}  // namespace vernier::bench
