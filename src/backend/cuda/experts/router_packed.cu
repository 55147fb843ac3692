// Routers of packed BF16 on tensor cores: logits and choice in one launch. An fp32 input is the sum of three bf16
// numbers, so all products are exact.
//
// Sums are kept apart for each unit of 64 columns, the first terms' and the others'; units are added in their order
// within a quarter of the columns, then the quarters. Both kernels do that, so what a token's logits are does not
// depend on the number of tokens.
#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/experts/choose.cuh"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kQuarters = 4;
constexpr int kGroupTokens = 8;  ///< columns of an instruction
constexpr int kPieces = pieces_per_unit(Packing::kBF16);

struct PackedRouteArgs {
  RouterLogits logits;
  ChooseExperts choice;
  unsigned* arrivals;  ///< [tiles of tokens], zeros
  bool is_whole;       ///< four columns of the input, from a multiple of four on, are all there and aligned, or none is
};

/// First unit of a quarter, or the end.
__host__ __device__ constexpr int quarter_begin(int units, int quarter) {
  const int begin = (units + kChunkUnits - 1) / kChunkUnits * quarter / kQuarters * kChunkUnits;
  return begin < units ? begin : units;
}

/// Four columns of a token; those beyond the last token are the last token's again.
__device__ __forceinline__ float4 load_input(const PackedRouteArgs& args, std::int64_t token, int col) {
  const std::int64_t last = args.logits.tokens - 1;
  const float* const x = args.logits.x + (token < last ? token : last) * args.logits.x_stride;
  const int cols = args.logits.router.weight.cols;
  if (!args.is_whole) return load_columns(x, col, cols);
  if (col >= cols) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  return *reinterpret_cast<const float4*>(x + col);
}

/// Four columns as B's fragments of the three terms.
__device__ __forceinline__ void split_columns(const float4& v, FragmentB (&terms)[3]) {
  const Bf16Terms of[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    terms[term].word[0] = pack_upper_halves(of[0].term[term], of[1].term[term]);
    terms[term].word[1] = pack_upper_halves(of[2].term[term], of[3].term[term]);
  }
}

/// A unit's sums: of the first terms, and of the others.
struct UnitSums {
  float first[4] = {};
  float rest[4] = {};

  /// The sum of both. Of an infinite weight the first terms' alone: the others may be zeros.
  [[nodiscard]] __device__ __forceinline__ float value(int i) const {
    return rest[i] == rest[i] ? __fadd_rn(rest[i], first[i]) : first[i];
  }
};

__device__ __forceinline__ FragmentA fragment_of(const uint4& piece) { return {{piece.x, piece.y, piece.z, piece.w}}; }

/// Where a lane's bytes of a unit begin. A tile too many is the last again.
__device__ __forceinline__ const std::byte* unit_of(const WeightRef& w, int tile, int unit) {
  const int last = (w.rows + kTileRows - 1) / kTileRows - 1;
  return w.codes + (std::int64_t{min(tile, last)} * w.units + unit) * unit_bytes(Packing::kBF16) +
         threadIdx.x % kWarp * 16;
}

// --- few tokens ------------------------------------------------------------------------------------------------------

constexpr int kFewWarps = 8;
constexpr int kHeldUnits = 2;
constexpr int kPassUnits = kFewWarps * kHeldUnits;
constexpr int kFewStride = 20;  ///< of a token's rows in shared memory: no bank conflicts

/// Grid: row tiles, quarters, groups of tokens. Weights are on their way before the input is there. A block leaves its
/// sums of a quarter in `logits`, [quarter, tokens, experts]; the last to arrive chooses.
__global__ void __launch_bounds__(kFewWarps* kWarp) route_few_kernel(const __grid_constant__ PackedRouteArgs args) {
  extern __shared__ float choice_memory[];
  __shared__ float sums[kPassUnits][kGroupTokens][kFewStride];
  release_successor();
  const WeightRef& weight = args.logits.router.weight;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int tile = static_cast<int>(blockIdx.x);
  const int quarter = static_cast<int>(blockIdx.y);
  const int begin = quarter_begin(weight.units, quarter);
  const int end = quarter_begin(weight.units, quarter + 1);
  uint4 held[kHeldUnits][kPieces];
  const auto load = [&](int first) {
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int unit = first + h * kFewWarps + warp;
      if (unit >= end) continue;
      const std::byte* const from = unit_of(weight, tile, unit);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) held[h][p] = load_stream(from + p * kPieceBytes);
    }
  };
  load(begin);
  wait_for_predecessor();
  const std::int64_t first_token = std::int64_t{blockIdx.z} * kGroupTokens;
  const int row_in_tile = thread % kTileRows;
  const int column = thread / kTileRows;
  float total = 0.0F;
#pragma unroll 1
  for (int first = begin; first < end; first += kPassUnits) {
    if (first != begin) {
      load(first);
      __syncthreads();
    }
    float4 x[kHeldUnits][kPieces];
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int col = (first + h * kFewWarps + warp) * kUnitCols + lane % 4 * 16;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) x[h][p] = load_input(args, first_token + lane / 4, col + p * 4);
    }
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int place = h * kFewWarps + warp;
      if (first + place >= end) continue;
      UnitSums unit;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        FragmentB terms[3];
        split_columns(x[h][p], terms);
        const FragmentA a = fragment_of(held[h][p]);
        multiply_add(unit.first, a, terms[0]);
        multiply_add(unit.rest, a, terms[2]);
        multiply_add(unit.rest, a, terms[1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[place][lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = unit.value(i);
    }
    __syncthreads();
    const int count = min(kPassUnits, end - first);
    for (int i = 0; i < count && column < kGroupTokens; ++i) total = __fadd_rn(total, sums[i][column][row_in_tile]);
  }
  const int row = tile * kTileRows + row_in_tile;
  const std::int64_t token = first_token + column;
  const std::int64_t quarter_size = args.logits.tokens * weight.rows;
  if (column < kGroupTokens && token < args.logits.tokens && row < weight.rows) {
    args.logits.logits[quarter * quarter_size + token * weight.rows + row] = total;
  }
  if (!arrives_last(args.arrivals + blockIdx.z, gridDim.x * gridDim.y)) return;
  if (first_token + warp >= args.logits.tokens) return;
  const int words = ChoiceMemory::words(args.choice.experts, args.choice.top_k);
  const float* const from = args.logits.logits + (first_token + warp) * weight.rows;
  choose_from(args.choice, first_token + warp, ChoiceMemory::at(choice_memory + warp * words, args.choice.experts),
              [&](int e) {
                float sum = __ldcg(from + e);
#pragma unroll
                for (int i = 1; i < kQuarters; ++i) sum = __fadd_rn(sum, __ldcg(from + i * quarter_size + e));
                return finish_product(args.logits.router, e, sum, nullptr);
              });
}

// --- many tokens -----------------------------------------------------------------------------------------------------

constexpr int kManyWarps = 16;
constexpr int kQuarterWarps = kManyWarps / kQuarters;
constexpr int kManyTokens = 16;
constexpr int kManyGroups = kManyTokens / kGroupTokens;
constexpr int kManyTiles = 2;  ///< of a warp
constexpr int kManyRows = kQuarterWarps * kManyTiles * kTileRows;
constexpr int kManyStride = kManyRows + 4;  ///< of a token's logits in shared memory: no bank conflicts

/// The input of a unit, in the order of lanes: [group][term][half of the lane's 16 columns][lane].
using StagedUnit = uint4[kManyGroups][3][2][kWarp];
/// A little more than the 48 KiB that two sets take: as much as a launch has without being asked for, less what the
/// block has beside it.
constexpr std::size_t kStagedBytes = 2 * kQuarters * sizeof(StagedUnit) + 16;
static_assert(kStagedBytes >= kQuarters * kManyTokens * kManyStride * sizeof(float));

/// A warp's share of a block: two row tiles, all of its tokens, a quarter of the columns. Four warps share a quarter,
/// and stage its input.
struct ManyWarp {
  int quarter;
  int part;  ///< which of the quarter's warps
  int lane;

  /// Where there are few tiles the warps that have some are spread over the schedulers.
  __device__ ManyWarp() {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    quarter = warp / kQuarterWarps;
    part = (warp + quarter) % kQuarterWarps;
    lane = static_cast<int>(threadIdx.x) % kWarp;
  }
  [[nodiscard]] __device__ int group() const { return part / 2; }
  [[nodiscard]] __device__ int half() const { return part % 2; }

  /// The eight columns of a unit that the lane stages.
  __device__ __forceinline__ void load(const PackedRouteArgs& args, int unit, float4 (&x)[2]) const {
    const std::int64_t token = std::int64_t{blockIdx.y} * kManyTokens + group() * kGroupTokens + lane / 4;
    const int col = unit * kUnitCols + lane % 4 * 16 + half() * 8;
    x[0] = load_input(args, token, col);
    x[1] = load_input(args, token, col + 4);
  }
  __device__ __forceinline__ void stage(const float4 (&x)[2], StagedUnit& to) const {
    FragmentB terms[2][3];
    split_columns(x[0], terms[0]);
    split_columns(x[1], terms[1]);
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      to[group()][term][half()][lane] =
          make_uint4(terms[0][term].word[0], terms[0][term].word[1], terms[1][term].word[0], terms[1][term].word[1]);
    }
  }
  /// For the quarter's warps.
  __device__ __forceinline__ void synchronize() const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(quarter + 1), "n"(kQuarterWarps * kWarp) : "memory");
  }
};

using ManySums = float[kManyTiles][kManyGroups][4];

/// One unit; `codes` are of the unit that follows, or null, and take the place of those used.
__device__ __forceinline__ void multiply_unit(uint4 (&held)[kManyTiles][kPieces],
                                              const std::byte* const (&codes)[kManyTiles], bool goes_on,
                                              const StagedUnit& input, int lane, ManySums& totals) {
  UnitSums sums[kManyTiles][kManyGroups];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int group = 0; group < kManyGroups; ++group) {
      uint4 b[3];
#pragma unroll
      for (int term = 0; term < 3; ++term) b[term] = input[group][term][half][lane];
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const auto fragment = [&](int term) {
          return p == 0 ? FragmentB{{b[term].x, b[term].y}} : FragmentB{{b[term].z, b[term].w}};
        };
#pragma unroll
        for (int tile = 0; tile < kManyTiles; ++tile) {
          multiply_add(sums[tile][group].first, fragment_of(held[tile][half * 2 + p]), fragment(0));
        }
#pragma unroll
        for (int term = 2; term > 0; --term) {
#pragma unroll
          for (int tile = 0; tile < kManyTiles; ++tile) {
            multiply_add(sums[tile][group].rest, fragment_of(held[tile][half * 2 + p]), fragment(term));
          }
        }
      }
    }
    if (!goes_on) continue;
#pragma unroll
    for (int i = 0; i < 2 * kManyTiles; ++i) {
      const int piece = half * 2 + i % 2;
      held[i / 2][piece] = __ldg(reinterpret_cast<const uint4*>(codes[i / 2] + piece * kPieceBytes));
    }
  }
#pragma unroll
  for (int i = 0; i < kManyTiles * kManyGroups * 4; ++i) {
    float& total = totals[i / 4 / kManyGroups][i / 4 % kManyGroups][i % 4];
    total = __fadd_rn(total, sums[i / 4 / kManyGroups][i / 4 % kManyGroups].value(i % 4));
  }
}

/// The sums of the warp's quarter.
__device__ __forceinline__ void multiply_quarter(const PackedRouteArgs& args, const ManyWarp& warp,
                                                 StagedUnit (*staged)[kQuarters], ManySums& totals) {
  const WeightRef& weight = args.logits.router.weight;
  const int begin = quarter_begin(weight.units, warp.quarter);
  const int end = quarter_begin(weight.units, warp.quarter + 1);
  const int tile = (static_cast<int>(blockIdx.x) * kQuarterWarps + warp.part) * kManyTiles;
  const bool has_rows = tile * kTileRows < weight.rows && begin < end;
  const std::byte* codes[kManyTiles];
  uint4 held[kManyTiles][kPieces];
#pragma unroll
  for (int i = 0; i < kManyTiles; ++i) {
    codes[i] = unit_of(weight, tile + i, begin);
#pragma unroll
    for (int p = 0; p < kPieces && has_rows; ++p) {
      held[i][p] = __ldg(reinterpret_cast<const uint4*>(codes[i] + p * kPieceBytes));
    }
  }
  wait_for_predecessor();
  if (begin == end) return;
  float4 x[2];
  warp.load(args, begin, x);
  warp.stage(x, staged[0][warp.quarter]);
  warp.load(args, begin + 1, x);  // zeros beyond the last column
  warp.synchronize();
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    const int set = (unit - begin) % 2;
    if (unit + 1 < end) warp.stage(x, staged[1 - set][warp.quarter]);
    if (unit + 2 < end) warp.load(args, unit + 2, x);
#pragma unroll
    for (int i = 0; i < kManyTiles; ++i) codes[i] += unit_bytes(Packing::kBF16);
    if (has_rows) multiply_unit(held, codes, unit + 1 < end, staged[set][warp.quarter], warp.lane, totals);
    warp.synchronize();
  }
}

/// Grid: tiles of experts, tiles of tokens.
__global__ void __launch_bounds__(kManyWarps* kWarp, 1)
    route_many_kernel(const __grid_constant__ PackedRouteArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  const ManyWarp warp;
  ManySums totals = {};
  multiply_quarter(args, warp, reinterpret_cast<StagedUnit(*)[kQuarters]>(memory), totals);
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(memory);  // [quarter][token][kManyStride]
#pragma unroll
  for (int i = 0; i < kManyTiles * kManyGroups * 4; ++i) {
    const int tile = i / 4 / kManyGroups;
    const int group = i / 4 % kManyGroups;
    const int row = (warp.part * kManyTiles + tile) * kTileRows + warp.lane / 4 + i % 4 / 2 * 8;
    const int column = group * kGroupTokens + warp.lane % 4 * 2 + i % 2;
    sums[(warp.quarter * kManyTokens + column) * kManyStride + row] = totals[tile][group][i % 4];
  }
  __syncthreads();
  const WeightRef& weight = args.logits.router.weight;
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kManyTokens;
  for (int i = static_cast<int>(threadIdx.x); i < kManyTokens * kManyRows; i += kManyWarps * kWarp) {
    const int row = static_cast<int>(blockIdx.x) * kManyRows + i % kManyRows;
    const int column = i / kManyRows;
    if (row >= weight.rows || first_token + column >= args.logits.tokens) continue;
    const float* const from = sums + column * kManyStride + i % kManyRows;
    float sum = from[0];
#pragma unroll
    for (int q = 1; q < kQuarters; ++q) sum = __fadd_rn(sum, from[q * kManyTokens * kManyStride]);
    args.logits.logits[(first_token + column) * weight.rows + row] =
        finish_product(args.logits.router, row, sum, nullptr);
  }
  if (!arrives_last(args.arrivals + blockIdx.y, gridDim.x)) return;
  const int number = static_cast<int>(threadIdx.x) / kWarp;
  if (first_token + number >= args.logits.tokens) return;
  const int words = ChoiceMemory::words(args.choice.experts, args.choice.top_k);
  choose_for(args.choice, first_token + number,
             ChoiceMemory::at(reinterpret_cast<float*>(memory) + number * words, args.choice.experts));
}

/// Whether the columns' quarters are shared out to blocks.
bool has_few_tokens(const WeightRef& router, std::int64_t tokens) {
  constexpr std::int64_t kMostTiles = 2048;
  return tokens * ((router.rows + kTileRows - 1) / kTileRows) <= kMostTiles;
}

}  // namespace

std::int64_t router_sums(const WeightRef& router, std::int64_t tokens) {
  const bool are_apart = router.packing == Packing::kBF16 && has_few_tokens(router, tokens);
  return tokens * router.rows * (are_apart ? kQuarters : 1);
}

cudaError_t route_packed(const RouterLogits& logits, const ChooseExperts& choice, unsigned* arrivals,
                         cudaStream_t stream) {
  const WeightRef& weight = logits.router.weight;
  const bool is_whole =
      logits.x_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits.x) % 16 == 0 && weight.cols % 4 == 0;
  const PackedRouteArgs args = {logits, choice, arrivals, is_whole};
  const std::size_t choice_bytes =
      static_cast<std::size_t>(ChoiceMemory::words(choice.experts, choice.top_k)) * sizeof(float);
  const auto parts_of = [](std::int64_t size, int part) { return static_cast<unsigned>((size + part - 1) / part); };
  if (has_few_tokens(weight, logits.tokens)) {
    const dim3 grid(parts_of(weight.rows, kTileRows), kQuarters, parts_of(logits.tokens, kGroupTokens));
    return launch_dependent(route_few_kernel, grid, kFewWarps * kWarp, kFewWarps * choice_bytes, stream, args);
  }
  const dim3 grid(parts_of(weight.rows, kManyRows), parts_of(logits.tokens, kManyTokens));
  return launch_dependent(route_many_kernel, grid, kManyWarps * kWarp,
                          std::max(kStagedBytes, kManyWarps * choice_bytes), stream, args);
}

}  // namespace vernier::cuda
