// Attention for many tokens on Hopper, to the bit what attention_mma.cu computes. A block of 384 threads takes a tile
// of 128 query rows (64 where heads are 256 wide): four warps bring keys and values of 128 positions at a time into a
// ring in shared memory, two groups of four warps multiply. Each group has 64 rows of its own; where heads are 256
// wide, the groups have the same rows and half of the dimensions each.
//
// The scores of a split stay in registers, become weights there, and those the operand of the product with the values.
// Two of three products being with values, the softmax of one group hides behind the products of the other.
#include <string_view>

#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/attention_wgmma.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kGroupThreads = 128;
constexpr int kGroupRows = 64;
constexpr int kThreads = 3 * kGroupThreads;

constexpr int rows_of_tile(int dim) { return dim == 256 ? kGroupRows : 2 * kGroupRows; }

/// Shared memory of a block.
template <int kDim>
struct Shared {
  static constexpr int kRows = rows_of_tile(kDim);
  static constexpr int kTileBytes = kSplitKeys * kDim * 2;
  static constexpr int kStages = kDim == 256 ? 3 : (kDim == 128 ? 5 : 6);
  alignas(1024) std::byte query[kRows * kDim * 2];
  alignas(1024) std::byte ring[kStages][kTileBytes];
  alignas(8) std::uint64_t full[kStages];
  alignas(8) std::uint64_t empty[kStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kBlocks = kSplitKeys / 8;  ///< of columns of scores
constexpr unsigned kConsumerWarps = 8;

/// A stage of the ring, and how often it came round.
template <int kDim>
struct Place {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == Shared<kDim>::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The tile's queries as bf16, by the threads that multiply. Rows without a query repeat the last one. All numbers of
/// some pieces are asked for before the first is needed: a tile begins with nothing else to do.
template <int kDim>
__device__ void load_queries(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim>& shared) {
  constexpr int kPieces = kDim / 8;
  constexpr int kReaders = kThreads - kGroupThreads;
  constexpr int kAtOnce = 4;
  constexpr int kAll = Shared<kDim>::kRows * kPieces;
  static_assert(kAll % (kReaders * kAtOnce) == 0);
  const bool is_aligned = has_aligned_fours(args.q);
  const std::int32_t last = tile.rows(Shared<kDim>::kRows) - 1;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) - kGroupThreads; first < kAll; first += kReaders * kAtOnce) {
    const float* from[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kReaders;
      const std::int32_t row = min(at / kPieces, last);
      from[i] =
          args.q.data + tile.matrix_row(row) * args.q.stride + std::int64_t{tile.head(row)} * kDim + at % kPieces * 8;
    }
    float4 low[kAtOnce];
    float4 high[kAtOnce];
    if (is_aligned) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        low[i] = load_four(from[i], true);
        high[i] = load_four(from[i] + 4, true);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        low[i] = load_four(from[i], false);
        high[i] = load_four(from[i] + 4, false);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kReaders;
      const uint4 words = {bf16_pair(low[i].x, low[i].y), bf16_pair(low[i].z, low[i].w),
                           bf16_pair(high[i].x, high[i].y), bf16_pair(high[i].z, high[i].w)};
      *reinterpret_cast<uint4*>(shared.query + piece_offset<Shared<kDim>::kRows>(at / kPieces, at % kPieces)) = words;
    }
  }
  see_shared_writes();
  asm volatile("bar.sync 1, %0;\n" ::"n"(kReaders) : "memory");
}

/// Four warps: asks for keys and values of all splits, 32 rows of each tile a warp.
template <int kDim>
__device__ void produce(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim>& shared) {
  const int first = static_cast<int>(threadIdx.x) / kWarpSize * kWarpSize;
  const std::int32_t own = static_cast<std::int32_t>(threadIdx.x);
  Place<kDim> at;
  std::int32_t cell = cell_of(args, tile, tile.first_split() * kSplitKeys + own);
#pragma unroll 1
  for (std::int32_t split = tile.first_split(); split <= tile.last_split(); ++split) {
    const std::int32_t next = cell_of(args, tile, (split + 1) * kSplitKeys + own);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      wait_for_phase(address_in_shared(&shared.empty[at.stage]), at.parity ^ 1);
      copy_rows<BF16Cell, kDim, kSplitKeys, kWarpSize>(half == 0 ? args.kv.keys : args.kv.values, cell,
                                                       address_in_shared(shared.ring[at.stage]), first);
      arrive_when_copied(address_in_shared(&shared.full[at.stage]));
      at.advance();
    }
    cell = next;
  }
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}

/// What a thread of a group holds: rows lane / 4 and lane / 4 + 8 of its warp's 16.
struct Rows {
  std::int32_t first;  ///< in the tile, of the two
  KeyRange keys[2];
  SoftmaxState state[2];
};

/// Scores become weights, relative to the split's largest; the split's softmax.
__device__ __forceinline__ void weigh(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                                      const Rows& rows, float (&scores)[kBlocks * 4], SoftmaxState (&states)[2]) {
  if (args.soft_cap > 0.0F) {
#pragma unroll
    for (int i = 0; i < kBlocks * 4; ++i) scores[i] = finish_score(args, scores[i]);
  }
  const std::int32_t begin = split * kSplitKeys;
  if (begin < tile.common.first || begin + kSplitKeys > tile.common.end) {
    const std::int32_t column = begin + static_cast<std::int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlocks * 4; ++i) {
      const std::int32_t position = column + i / 4 * 8 + i % 2;
      const KeyRange& keys = rows.keys[i / 2 % 2];
      if (position < keys.first || position >= keys.end) scores[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) largest = fmaxf(largest, scores[i / 2 * 4 + 2 * h + i % 2]);
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
    largest = largest_power(args, largest);
    const float base = largest == -INFINITY ? 0.0F : largest;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) {
      float& score = scores[i / 2 * 4 + 2 * h + i % 2];
      score = weight_of(args, score, base);
    }
    // Each lane the keys of two remainders by 8, in pairs of blocks: as attention_mma.cu's warps have them.
    float total = 0.0F;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float* const column = scores + 2 * h + c;
      float sum = 0.0F;
#pragma unroll
      for (int block = 0; block < kBlocks; block += 2) {
        const float pair = __fadd_rn(column[block * 4], column[block * 4 + 4]);
        sum = block == 0 ? pair : __fadd_rn(sum, pair);
      }
      total = c == 0 ? sum : __fadd_rn(total, sum);
    }
    total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 1));
    total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 2));
    states[h] = {largest, total};
  }
}

/// The weights of 16 keys as two bf16 terms each.
struct WeightTerms {
  FragmentA large;
  FragmentA small;
};
__device__ __forceinline__ WeightTerms terms_of(const float* weights) {
  WeightTerms terms;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low = weights[2 * i];
    float high = weights[2 * i + 1];
    terms.large.word[i] = take_term(low, high);
    terms.small.word[i] = take_term(low, high);
  }
  return terms;
}

/// Where a group of four warps has its operands, and where it is in the ring.
template <int kDim>
struct Operands {
  static constexpr int kOut = kDim == 256 ? 128 : kDim;  ///< dimensions of the result
  static constexpr int kChunkBytes = kSplitKeys * 128;   ///< 64 dimensions of a tile
  static constexpr std::uint64_t kStage = Shared<kDim>::kTileBytes / 16;

  std::uint64_t query;
  std::uint64_t keys;
  std::uint64_t values;
  Place<kDim> at;

  __device__ Operands(Shared<kDim>& shared, int first_row, int first_dim)
      : query(describe_b(address_in_shared(shared.query) + static_cast<std::uint32_t>(first_row) * 128)),
        keys(describe_b(address_in_shared(shared.ring[0]))),
        values(
            describe_rows(address_in_shared(shared.ring[0]) + static_cast<std::uint32_t>(first_dim / 64 * kChunkBytes),
                          kChunkBytes)) {}

  __device__ __forceinline__ void wait(Shared<kDim>& shared) const {
    wait_for_phase(address_in_shared(&shared.full[at.stage]), at.parity);
    see_shared_writes();
  }
  /// The stage may be filled again.
  __device__ __forceinline__ void release(Shared<kDim>& shared) {
    if (threadIdx.x % kWarpSize == 0) arrive_here(address_in_shared(&shared.empty[at.stage]));
    at.advance();
  }

  /// Leaves the scores of the keys at hand to the tensor cores.
  __device__ __forceinline__ void start_scores(float (&scores)[kBlocks * 4]) const {
    pin_sums(scores);
    begin_async();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const auto in_chunk = static_cast<std::uint64_t>(step % 4 * kDescriptorStep);
      multiply_add_async(scores, query + step / 4 * (Shared<kDim>::kRows * 128 / 16) + in_chunk,
                         keys + at.stage * kStage + step / 4 * (kChunkBytes / 16) + in_chunk, step > 0);
    }
    commit_async();
  }
  /// The same with the sums of the values at hand.
  __device__ __forceinline__ void start_sums(const WeightTerms (&terms)[kSplitKeys / 16],
                                             float (&sums)[kOut / 2]) const {
    pin_sums(sums);
    begin_async();
#pragma unroll
    for (int step = 0; step < kSplitKeys / 16; ++step) {
      const std::uint64_t from = values + at.stage * kStage + static_cast<std::uint64_t>(step * kRowsStep);
      multiply_add_async<LayoutB::kRowsOfK>(sums, terms[step].small, from, step > 0);
      multiply_add_async<LayoutB::kRowsOfK>(sums, terms[step].large, from, 1);
    }
    commit_async();
  }
};

template <int kDim>
__device__ __forceinline__ void write_result(const AttentionKernelArgs& args, const Tile& tile, const Rows& rows,
                                             int first_dim, const float (&totals)[Operands<kDim>::kOut / 2]) {
  const bool is_aligned = has_aligned_fours(args.y);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = rows.first + 8 * h;
    if (!tile.holds(row)) continue;
    const float factor = finish(args, tile.head(row), rows.state[h]);
    float* const to = args.y.data + tile.matrix_row(row) * args.y.stride + std::int64_t{tile.head(row)} * kDim +
                      first_dim + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < Operands<kDim>::kOut / 8; ++i) {
      store_two(to + i * 8, __fmul_rn(totals[i * 4 + 2 * h], factor), __fmul_rn(totals[i * 4 + 2 * h + 1], factor),
                is_aligned);
    }
  }
}

/// Four warps: scores, weights and sums of all splits, and the result.
template <int kDim>
__device__ void consume(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim>& shared) {
  constexpr int kOut = Operands<kDim>::kOut;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  const int lane = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int first_row = kDim == 256 ? 0 : group * kGroupRows;
  const int first_dim = kDim == 256 ? group * kOut : 0;
  Rows rows;
  rows.first = first_row + lane / kWarpSize * 16 + lane % kWarpSize / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int32_t row = rows.first + 8 * h;
    rows.keys[h] = tile.holds(row) ? visible_keys(args, tile.slice.past + tile.token(row)) : tile.keys;
    rows.state[h] = empty_state();
  }
  Operands<kDim> operands(shared, first_row, first_dim);
  float totals[kOut / 2] = {};
#pragma unroll 1
  for (std::int32_t split = tile.first_split(); split <= tile.last_split(); ++split) {
    float scores[kBlocks * 4];
    operands.wait(shared);
    operands.start_scores(scores);
    wait_async<0>();
    pin_sums(scores);
    operands.release(shared);
    SoftmaxState states[2];
    weigh(args, tile, split, rows, scores, states);
    WeightTerms terms[kSplitKeys / 16];
#pragma unroll
    for (int step = 0; step < kSplitKeys / 16; ++step) terms[step] = terms_of(scores + step * 8);
    const FoldFactors factors[2] = {fold(rows.state[0], states[0]), fold(rows.state[1], states[1])};
    float sums[kOut / 2];
    operands.wait(shared);
    operands.start_sums(terms, sums);
    wait_async<0>();
    pin_sums(sums);
    operands.release(shared);
#pragma unroll
    for (int i = 0; i < kOut / 2; ++i) totals[i] = fold_value(totals[i], sums[i], factors[i / 2 % 2]);
  }
  write_result<kDim>(args, tile, rows, first_dim, totals);
}

#endif

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) async_kernel(const __grid_constant__ AttentionKernelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  release_successor();
  // Late tiles see the most keys: they begin first.
  const auto heads = static_cast<unsigned>(args.kv.num_kv_heads);
  const Tile tile =
      make_tile(args, static_cast<std::int32_t>(blockIdx.y), static_cast<std::int32_t>(blockIdx.x % heads),
                Shared<kDim>::kRows, static_cast<std::int32_t>(gridDim.x / heads - 1 - blockIdx.x / heads));
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared<kDim>::kStages; ++i) {
      init_barrier(address_in_shared(&shared.full[i]), kGroupThreads);
      init_barrier(address_in_shared(&shared.empty[i]), kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  wait_for_predecessor();
  if (tile.is_idle()) return;
  __syncthreads();
  constexpr int kProducerRegisters = 40;
  constexpr int kConsumerRegisters = 232;
  if (threadIdx.x < kGroupThreads) {
    give_registers<kProducerRegisters>();
    produce(args, tile, shared);
  } else {
    load_queries(args, tile, shared);
    take_registers<kConsumerRegisters>();
    consume(args, tile, shared);
  }
#endif
}

template <int kDim>
Status run(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t queries) {
  const std::int32_t tiles = (queries + rows_of_tile(kDim) - 1) / rows_of_tile(kDim);
  const LaunchShape shape = {
      dim3(static_cast<unsigned>(tiles * args.kv.num_kv_heads), static_cast<unsigned>(args.step.num_slices)),
      dim3(kThreads), sizeof(Shared<kDim>)};
  return launch(context, shape, async_kernel<kDim>, args);
}

}  // namespace

bool can_attend_async(const CudaContext& context, const KvLayer& kv) {
  constexpr bool kIsBuilt = std::string_view(VERNIER_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
  return kIsBuilt && context.capability == 90 && context.max_shared_bytes >= sizeof(Shared<256>) &&
         kv.dtype == DType::kBF16;
}

std::int32_t async_tile_rows(const KvLayer& kv) { return rows_of_tile(kv.head_dim); }

Status attend_async(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  const std::int32_t queries = longest * (args.num_heads / args.kv.num_kv_heads);
  if (args.kv.head_dim == 256) return run<256>(context, args, queries);
  if (args.kv.head_dim == 64) return run<64>(context, args, queries);
  return run<128>(context, args, queries);
}

}  // namespace vernier::cuda
