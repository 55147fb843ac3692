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
  bool is_large = false;  ///< too much for a host's cores to be worth waiting for

  [[nodiscard]] std::int32_t pages() const { return (past + tokens + kPageSize - 1) / kPageSize; }
  [[nodiscard]] std::int64_t rows() const { return std::int64_t{sequences} * tokens; }
};

/// A pool of pages in which successive calls take successive stretches, as layers of a model have their own memory.
struct PagePool {
  std::shared_ptr<Buffer> keys;
  std::shared_ptr<Buffer> values;
  std::shared_ptr<std::vector<std::int32_t>> order;  ///< 0, 1, 2, ...
  std::uint64_t page_bytes = 0;                      ///< of keys
  DType dtype = DType::kBF16;
  HeadShape heads;

  [[nodiscard]] KvLayer layer(std::int64_t first_page) const {
    const std::uint64_t at = static_cast<std::uint64_t>(first_page) * page_bytes;
    return {.keys = static_cast<std::byte*>(keys->data()) + at,
            .values = static_cast<std::byte*>(values->data()) + at,
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
  pool.page_bytes = page_bytes;
  pool.dtype = dtype;
  pool.heads = heads;
  const std::vector<std::byte> noise = cache_noise(dtype);
  VN_ASSIGN(pool.keys, repeated_bytes(*context.backend, noise, pages * page_bytes));
  VN_ASSIGN(pool.values, repeated_bytes(*context.backend, noise, pages * page_bytes));
  pool.order = std::make_shared<std::vector<std::int32_t>>(pages);
  std::iota(pool.order->begin(), pool.order->end(), 0);
  return pool;
}

std::string shape_name(const HeadShape& heads, const AttentionLoad& load) {
  const std::string name =
      load.tokens == 1 ? fmt::format("{} x {}", load.sequences, load.past + 1) : fmt::format("{}", load.tokens);
  return heads.dim == kUsualHeads.dim ? name : name + fmt::format(" (heads of {})", heads.dim);
}

/// Rows 0, 1, ... of a step, and state slots alike. No pages yet.
std::vector<SequenceSlice> slices_of(std::int32_t sequences, std::int32_t tokens, std::int32_t past) {
  std::vector<SequenceSlice> slices;
  slices.reserve(static_cast<std::size_t>(sequences));
  for (std::int32_t i = 0; i < sequences; ++i) slices.push_back({i * tokens, tokens, past, {}, i});
  return slices;
}

KernelCase attention_case(Backend& backend, const PagePool& pool, const AttentionLoad& load,
                          const std::shared_ptr<Buffer>& q, const std::shared_ptr<Buffer>& y) {
  const std::int32_t pages = load.pages();
  const double tokens = load.tokens;
  const HeadShape heads = pool.heads;
  const double position_bytes = 0.25 * heads.kv_heads * heads.dim * dtype_bits(pool.dtype);  // keys and values
  KernelCase one;
  one.op = load.tokens == 1 ? "attention" : "prefill";
  one.format = dtype_name(pool.dtype);
  one.shape = shape_name(heads, load);
  one.tokens = load.rows();
  one.bytes = load.sequences * (load.past + tokens) * position_bytes;
  one.flops = load.sequences * 4.0 * heads.heads * heads.dim * (tokens * load.past + tokens * (tokens + 1.0) / 2.0);
  const std::int64_t own_pages = std::int64_t{pages} * load.sequences;
  one.copies = std::max<std::int64_t>(static_cast<std::int64_t>(pool.order->size()) / own_pages, 1);
  one.step.tokens.assign(static_cast<std::size_t>(load.rows()), 0);
  one.step.slices = slices_of(load.sequences, load.tokens, load.past);
  const std::span<const std::int32_t> order(*pool.order);
  for (std::size_t i = 0; i < one.step.slices.size(); ++i) {
    one.step.slices[i].pages = order.subspan(i * static_cast<std::size_t>(pages), static_cast<std::size_t>(pages));
  }
  const std::int64_t cols = std::int64_t{heads.heads} * heads.dim;
  one.run = [&backend, pool, q, y, cols, own_pages, load, copies = one.copies,
             slices = one.step.slices](std::int64_t call) {
    AttentionArgs args;
    args.q = matrix_of(*q, load.rows(), cols);
    args.num_heads = pool.heads.heads;
    args.scale = 0.088F;
    args.slices = slices;
    args.kv = pool.layer(call % copies * own_pages);
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

Result<NetOperands> make_net(const CaseContext& context, std::int64_t tokens, std::int64_t least_slots) {
  Backend& backend = *context.backend;
  NetOperands net;
  const auto filling = static_cast<std::int64_t>(context.working_set / (kStateFloats * sizeof(float))) + 1;
  net.slots = std::max(filling, least_slots);
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

struct NetLoad {
  std::int32_t sequences = 1;
  std::int32_t tokens = 1;
  bool is_large = false;  ///< as for attention

  [[nodiscard]] std::int64_t rows() const { return std::int64_t{sequences} * tokens; }
  [[nodiscard]] std::string name() const { return fmt::format("{} x {}", sequences, tokens); }
};

KernelCase net_case(Backend& backend, const NetOperands& net, const NetLoad& load) {
  KernelCase one;
  one.op = "delta-net";
  one.format = "f32";
  one.shape = load.name();
  one.tokens = load.rows();
  one.bytes = 2.0 * sizeof(float) * load.sequences * static_cast<double>(kStateFloats + kInputFloats);
  // Decay, S^T k, the outer product and S^T q: one, two, two and two operations an element of the state.
  one.flops = 7.0 * static_cast<double>(one.tokens) * static_cast<double>(kStateFloats);
  one.copies = net.slots / load.sequences;
  one.step.tokens.assign(static_cast<std::size_t>(load.rows()), 0);
  one.step.slices = slices_of(load.sequences, load.tokens, 64);
  one.run = [&backend, net, load, copies = one.copies, slices = one.step.slices](std::int64_t call) {
    const std::int64_t rows = load.rows();
    const std::int64_t first_slot = call % copies * load.sequences;
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
    args.recurrent = static_cast<float*>(net.recurrent->data()) + first_slot * kStateFloats;
    args.convolution = static_cast<float*>(net.convolution->data()) + first_slot * kInputFloats;
    args.y = matrix_of(*net.y, rows, kValueHeads * kStateDim);
    return backend.gated_delta_net(args);
  };
  return one;
}

/// Cases of one kind of heads, with memory for those that are wanted.
Status add_attention(const CaseContext& context, DType kv_dtype, const HeadShape& heads,
                     std::span<const AttentionLoad> loads, KernelGroup& group) {
  std::vector<AttentionLoad> wanted;
  std::int32_t most_pages = 0;
  std::int64_t most_rows = 0;
  for (const AttentionLoad& load : loads) {
    if (!context.wants(shape_name(heads, load)) || (load.is_large && context.backend->is_host())) continue;
    wanted.push_back(load);
    most_pages = std::max(most_pages, load.pages() * load.sequences);
    most_rows = std::max(most_rows, load.rows());
  }
  if (wanted.empty()) return {};
  const std::int64_t floats = most_rows * heads.heads * heads.dim;
  VN_ASSIGN(const PagePool pool, make_pages(context, kv_dtype, heads, most_pages));
  VN_ASSIGN(const auto q, random_floats(*context.backend, floats));
  VN_ASSIGN(const auto y, random_floats(*context.backend, floats));
  for (const AttentionLoad& load : wanted) group.push_back(attention_case(*context.backend, pool, load, q, y));
  return {};
}

}  // namespace

Result<KernelGroup> attention_cases(const CaseContext& context, DType kv_dtype) {
  constexpr AttentionLoad kLoads[] = {{1, 1, 1023},        {1, 1, 8191}, {1, 1, 32767, true}, {16, 1, 2047},
                                      {32, 1, 4095, true}, {1, 512, 0},  {1, 4096, 0},        {1, 8192, 0, true}};
  constexpr AttentionLoad kWideLoads[] = {{1, 1, 8191}, {1, 1, 31999}, {1, 2048, 0}};
  KernelGroup group;
  VN_TRY(add_attention(context, kv_dtype, kUsualHeads, kLoads, group));
  VN_TRY(add_attention(context, kv_dtype, kWideHeads, kWideLoads, group));
  return group;
}

Result<KernelGroup> delta_net_cases(const CaseContext& context) {
  constexpr NetLoad kLoads[] = {{1, 1},         {16, 1},  {32, 1, true},   {128, 1, true},
                                {512, 1, true}, {1, 512}, {1, 32768, true}};
  std::vector<NetLoad> wanted;
  std::int64_t most_rows = 0;
  std::int32_t most_sequences = 0;
  for (const NetLoad& load : kLoads) {
    if (!context.wants(load.name()) || (load.is_large && context.backend->is_host())) continue;
    wanted.push_back(load);
    most_rows = std::max(most_rows, load.rows());
    most_sequences = std::max(most_sequences, load.sequences);
  }
  KernelGroup group;
  if (wanted.empty()) return group;
  VN_ASSIGN(const NetOperands net, make_net(context, most_rows, most_sequences));
  for (const NetLoad& load : wanted) group.push_back(net_case(*context.backend, net, load));
  return group;
}

}  // namespace vernier::bench
