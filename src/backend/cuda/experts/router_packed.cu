// Routers of packed BF16 and F32 on tensor cores: logits and choice in one launch. An fp32 input is the sum of three
// bf16 numbers, and so is a weight of F32: all products are exact. Of the nine of two fp32 numbers three are left out,
// which together are below 2^-22 of the whole.
//
// Sums are kept apart for each unit of 64 columns, the first terms' and the others'; units are added in their order
// within a quarter of the columns, then the quarters. Both kernels do that, so what a token's logits are does not
// depend on the number of tokens.
#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/experts/choose.cuh"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/experts/router_units.cuh"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kGroupTokens = 8;  ///< columns of an instruction
constexpr int kFragments = 4;    ///< of a unit

struct PackedRouteArgs {
  RouterLogits logits;
  ChooseExperts choice;
  unsigned* arrivals;  ///< [tiles of tokens], zeros
  bool is_whole;       ///< four columns of the input, from a multiple of four on, are all there and aligned, or none is
};

/// What a lane holds of a unit of weights, in registers.
template <Packing kPacking>
struct HeldUnit {
  static constexpr int kPieces = pieces_per_unit(kPacking);
  static constexpr int kPiecesOfFragment = kPieces / 4;
  static constexpr int kTerms = kPacking == Packing::kF32 ? 3 : 1;
  using Fragments = FragmentA[kTerms];
  uint4 piece[kPieces];

  /// Fragment i's terms.
  __device__ __forceinline__ void decode(int i, Fragments& terms) const {
    if constexpr (kTerms == 1) {
      terms[0] = {{piece[i].x, piece[i].y, piece[i].z, piece[i].w}};
    } else {
      const SplitFragment split(piece[2 * i], piece[2 * i + 1]);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) terms[term] = split.term[term];
    }
  }
};

/// Which terms are multiplied for UnitSums::rest, the smallest products first.
struct TermPair {
  int weight;
  int input;
};
template <int kTerms>
struct RestPairs;
template <>
struct RestPairs<1> {
  static constexpr int kCount = 2;
  static __device__ constexpr TermPair at(int i) { return {0, 2 - i}; }
};
template <>
struct RestPairs<3> {
  static constexpr int kCount = 5;
  static __device__ constexpr TermPair at(int i) { return i < 3 ? TermPair{2 - i, i} : TermPair{4 - i, i - 3}; }
};

/// Where a lane's bytes of a unit begin. A tile too many is the last again.
template <Packing kPacking>
__device__ __forceinline__ const std::byte* unit_of(const WeightRef& w, int tile, int unit) {
  const int last = (w.rows + kTileRows - 1) / kTileRows - 1;
  return w.codes + (std::int64_t{min(tile, last)} * w.units + unit) * unit_bytes(kPacking) + threadIdx.x % kWarp * 16;
}

// --- few tokens ------------------------------------------------------------------------------------------------------

constexpr int kFewWarps = 8;
constexpr int kHeldUnits = 2;
constexpr int kPassUnits = kFewWarps * kHeldUnits;
constexpr int kFewStride = 20;  ///< of a token's rows in shared memory: no bank conflicts

/// Grid: row tiles, quarters, groups of tokens. Weights are on their way before the input is there. A block leaves its
/// sums of a quarter in `logits`, [quarter, tokens, experts]; the last to arrive chooses.
template <Packing kPacking>
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
  using Unit = HeldUnit<kPacking>;
  using Rest = RestPairs<Unit::kTerms>;
  Unit held[kHeldUnits];
  const auto load = [&](int first) {
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int unit = first + h * kFewWarps + warp;
      if (unit >= end) continue;
      const std::byte* const from = unit_of<kPacking>(weight, tile, unit);
#pragma unroll
      for (int p = 0; p < Unit::kPieces; ++p) held[h].piece[p] = load_stream(from + p * kPieceBytes);
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
    float4 x[kHeldUnits][kFragments];
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int col = (first + h * kFewWarps + warp) * kUnitCols + lane % 4 * 16;
#pragma unroll
      for (int i = 0; i < kFragments; ++i)
        x[h][i] = load_router_input(args.logits, args.is_whole, first_token + lane / 4, col + i * 4);
    }
#pragma unroll
    for (int h = 0; h < kHeldUnits; ++h) {
      const int place = h * kFewWarps + warp;
      if (first + place >= end) continue;
      UnitSums unit;
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        FragmentB terms[3];
        split_columns(x[h][i], terms);
        typename Unit::Fragments a;
        held[h].decode(i, a);
        multiply_add(unit.first, a[0], terms[0]);
#pragma unroll
        for (int pair = 0; pair < Rest::kCount; ++pair) {
          multiply_add(unit.rest, a[Rest::at(pair).weight], terms[Rest::at(pair).input]);
        }
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

/// A block's part of the logits. Weights of F32 take more registers, and more work to decode: fewer rows, more tokens.
template <Packing kPacking>
struct ManyTile {
  static constexpr int kTiles = kPacking == Packing::kF32 ? 1 : 2;  ///< of a warp
  static constexpr int kGroups = 4 / kTiles;
  static constexpr int kGroupsAtOnce = kGroups / 2;
  static constexpr int kTokens = kGroups * kGroupTokens;
  static constexpr int kRows = kQuarterWarps * kTiles * kTileRows;
  static constexpr int kStride = kRows + 4;  ///< of a token's logits in shared memory: no bank conflicts
  /// What a warp stages of a unit's input: of so many pieces of 8 tokens and half of each lane's 16 columns.
  static constexpr int kPieces = kGroups * 2 / kQuarterWarps;

  /// The input of a unit, in the order of lanes: [group][term][half of the lane's 16 columns][lane].
  using Staged = uint4[kGroups][3][2][kWarp];
  /// A little more than two sets take: as much as a launch has without being asked for, less what the block has beside
  /// it.
  static constexpr std::size_t kBytes = 2 * kQuarters * sizeof(Staged) + 16;
  static_assert(kBytes >= kQuarters * kTokens * kStride * sizeof(float));

  using Sums = float[kTiles][kGroups][4];
};

/// A warp's share of a block: its row tiles, all of its tokens, a quarter of the columns. Four warps share a quarter,
/// and stage its input.
template <Packing kPacking>
struct ManyWarp {
  using Tile = ManyTile<kPacking>;
  using Input = float4[Tile::kPieces][2];
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
  [[nodiscard]] __device__ int group(int piece) const { return (part * Tile::kPieces + piece) / 2; }
  [[nodiscard]] __device__ int half(int piece) const { return (part * Tile::kPieces + piece) % 2; }

  /// The columns of a unit that the lane stages, eight a piece.
  __device__ __forceinline__ void load(const PackedRouteArgs& args, int unit, Input& x) const {
#pragma unroll
    for (int piece = 0; piece < Tile::kPieces; ++piece) {
      const std::int64_t token = std::int64_t{blockIdx.y} * Tile::kTokens + group(piece) * kGroupTokens + lane / 4;
      const int col = unit * kUnitCols + lane % 4 * 16 + half(piece) * 8;
      x[piece][0] = load_router_input(args.logits, args.is_whole, token, col);
      x[piece][1] = load_router_input(args.logits, args.is_whole, token, col + 4);
    }
  }
  __device__ __forceinline__ void stage(const Input& x, typename Tile::Staged& to) const {
#pragma unroll
    for (int piece = 0; piece < Tile::kPieces; ++piece) {
      FragmentB terms[2][3];
      split_columns(x[piece][0], terms[0]);
      split_columns(x[piece][1], terms[1]);
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        to[group(piece)][term][half(piece)][lane] =
            make_uint4(terms[0][term].word[0], terms[0][term].word[1], terms[1][term].word[0], terms[1][term].word[1]);
      }
    }
  }
  /// For the quarter's warps.
  __device__ __forceinline__ void synchronize() const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(quarter + 1), "n"(kQuarterWarps * kWarp) : "memory");
  }
};

/// The weights of a unit for all tiles of a warp, and where the next unit's are.
template <Packing kPacking>
struct ManyWeights {
  using Tile = ManyTile<kPacking>;
  using Unit = HeldUnit<kPacking>;
  Unit held[Tile::kTiles];
  const std::byte* codes[Tile::kTiles];

  /// Those of fragment i, once the unit in front needs it no more.
  __device__ __forceinline__ void load(int i) {
    constexpr int kPieces = Unit::kPiecesOfFragment;
#pragma unroll
    for (int tile = 0; tile < Tile::kTiles; ++tile) {
#pragma unroll
      for (int p = i * kPieces; p < (i + 1) * kPieces; ++p) {
        held[tile].piece[p] = __ldg(reinterpret_cast<const uint4*>(codes[tile] + p * kPieceBytes));
      }
    }
  }
  __device__ __forceinline__ void step() {
#pragma unroll
    for (int tile = 0; tile < Tile::kTiles; ++tile) codes[tile] += unit_bytes(kPacking);
  }
};

/// One unit; where it goes on, the weights of the unit that follows take the place of those used.
template <Packing kPacking>
__device__ __forceinline__ void multiply_unit(ManyWeights<kPacking>& weights, bool goes_on,
                                              const typename ManyTile<kPacking>::Staged& input, int lane,
                                              typename ManyTile<kPacking>::Sums& totals) {
  using Tile = ManyTile<kPacking>;
  using Unit = HeldUnit<kPacking>;
  using Rest = RestPairs<Unit::kTerms>;
  constexpr int kAtOnce = Tile::kGroupsAtOnce;
  UnitSums sums[Tile::kTiles][Tile::kGroups];
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    typename Unit::Fragments a[Tile::kTiles];
#pragma unroll
    for (int tile = 0; tile < Tile::kTiles; ++tile) weights.held[tile].decode(i, a[tile]);
    if (goes_on && Unit::kTerms > 1) weights.load(i);
#pragma unroll
    for (int first = 0; first < Tile::kGroups; first += kAtOnce) {
      FragmentB b[kAtOnce][3];
#pragma unroll
      for (int j = 0; j < kAtOnce * 3; ++j) {
        const uint4* const from = &input[first + j / 3][j % 3][i / 2][lane];
        const auto* const words = reinterpret_cast<const std::uint32_t*>(from) + i % 2 * 2;
        b[j / 3][j % 3].word[0] = words[0];
        b[j / 3][j % 3].word[1] = words[1];
      }
#pragma unroll
      for (int j = 0; j < kAtOnce * Tile::kTiles; ++j) {
        const int group = j / Tile::kTiles;
        const int tile = j % Tile::kTiles;
        multiply_add(sums[tile][first + group].first, a[tile][0], b[group][0]);
      }
#pragma unroll
      for (int pair = 0; pair < Rest::kCount; ++pair) {
#pragma unroll
        for (int j = 0; j < kAtOnce * Tile::kTiles; ++j) {
          const int group = j / Tile::kTiles;
          const int tile = j % Tile::kTiles;
          multiply_add(sums[tile][first + group].rest, a[tile][Rest::at(pair).weight], b[group][Rest::at(pair).input]);
        }
      }
    }
    if (goes_on && Unit::kTerms == 1) weights.load(i);
  }
#pragma unroll
  for (int i = 0; i < Tile::kTiles * Tile::kGroups * 4; ++i) {
    float& total = totals[i / 4 / Tile::kGroups][i / 4 % Tile::kGroups][i % 4];
    total = __fadd_rn(total, sums[i / 4 / Tile::kGroups][i / 4 % Tile::kGroups].value(i % 4));
  }
}
/// The sums of the warp's quarter.
template <Packing kPacking>
__device__ __forceinline__ void multiply_quarter(const PackedRouteArgs& args, const ManyWarp<kPacking>& warp,
                                                 typename ManyTile<kPacking>::Staged (*staged)[kQuarters],
                                                 typename ManyTile<kPacking>::Sums& totals) {
  constexpr int kTiles = ManyTile<kPacking>::kTiles;
  const WeightRef& weight = args.logits.router.weight;
  const int begin = quarter_begin(weight.units, warp.quarter);
  const int end = quarter_begin(weight.units, warp.quarter + 1);
  const int tile = (static_cast<int>(blockIdx.x) * kQuarterWarps + warp.part) * kTiles;
  const bool has_rows = tile * kTileRows < weight.rows && begin < end;
  ManyWeights<kPacking> weights;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) weights.codes[i] = unit_of<kPacking>(weight, tile + i, begin);
#pragma unroll
  for (int i = 0; i < kFragments && has_rows; ++i) weights.load(i);
  wait_for_predecessor();
  typename ManyWarp<kPacking>::Input x;
  warp.load(args, begin, x);
  warp.stage(x, staged[0][warp.quarter]);
  warp.load(args, begin + 1, x);  // zeros beyond the last column
  warp.synchronize();
#pragma unroll 1
  for (int unit = begin; unit < end; ++unit) {
    const int set = (unit - begin) % 2;
    if (unit + 1 < end) warp.stage(x, staged[1 - set][warp.quarter]);
    if (unit + 2 < end) warp.load(args, unit + 2, x);
    weights.step();
    if (has_rows) multiply_unit<kPacking>(weights, unit + 1 < end, staged[set][warp.quarter], warp.lane, totals);
    warp.synchronize();
  }
  // All quarters meet equally often, though some have fewer units: racecheck takes __syncthreads() for no order between
  // threads of which some have met more often (pattern parts-uneven of bench/racecheck_patterns.cu).
  for (int unit = end - begin; unit < most_quarter_units(weight.units); ++unit) warp.synchronize();
}

/// Grid: tiles of experts, tiles of tokens.
template <Packing kPacking>
__global__ void __launch_bounds__(kManyWarps* kWarp, 1)
    route_many_kernel(const __grid_constant__ PackedRouteArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  using Tile = ManyTile<kPacking>;
  const ManyWarp<kPacking> warp;
  typename Tile::Sums totals = {};
  multiply_quarter<kPacking>(args, warp, reinterpret_cast<typename Tile::Staged(*)[kQuarters]>(memory), totals);
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(memory);  // [quarter][token][Tile::kStride]
#pragma unroll
  for (int i = 0; i < Tile::kTiles * Tile::kGroups * 4; ++i) {
    const int tile = i / 4 / Tile::kGroups;
    const int group = i / 4 % Tile::kGroups;
    const int row = (warp.part * Tile::kTiles + tile) * kTileRows + warp.lane / 4 + i % 4 / 2 * 8;
    const int column = group * kGroupTokens + warp.lane % 4 * 2 + i % 2;
    sums[(warp.quarter * Tile::kTokens + column) * Tile::kStride + row] = totals[tile][group][i % 4];
  }
  __syncthreads();
  const WeightRef& weight = args.logits.router.weight;
  const std::int64_t first_token = std::int64_t{blockIdx.y} * Tile::kTokens;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kTokens * Tile::kRows; i += kManyWarps * kWarp) {
    const int row = static_cast<int>(blockIdx.x) * Tile::kRows + i % Tile::kRows;
    const int column = i / Tile::kRows;
    if (row >= weight.rows || first_token + column >= args.logits.tokens) continue;
    const float* const from = sums + column * Tile::kStride + i % Tile::kRows;
    float sum = from[0];
#pragma unroll
    for (int q = 1; q < kQuarters; ++q) sum = __fadd_rn(sum, from[q * Tile::kTokens * Tile::kStride]);
    args.logits.logits[(first_token + column) * weight.rows + row] =
        finish_product(args.logits.router, row, sum, nullptr);
  }
  if (!arrives_last(args.arrivals + blockIdx.y, gridDim.x)) return;
  const int words = ChoiceMemory::words(args.choice.experts, args.choice.top_k);
  const int number = static_cast<int>(threadIdx.x) / kWarp;
  float* const own = reinterpret_cast<float*>(memory) + number * words;
  for (int t = number; t < Tile::kTokens && first_token + t < args.logits.tokens; t += kManyWarps) {
    choose_for(args.choice, first_token + t, ChoiceMemory::at(own, args.choice.experts));
    __syncwarp();
  }
}

/// Whether the columns' quarters are shared out to blocks.
bool has_few_tokens(const WeightRef& router, std::int64_t tokens) {
  constexpr std::int64_t kMostTiles = 2048;
  return tokens * ((router.rows + kTileRows - 1) / kTileRows) <= kMostTiles;
}

template <Packing kPacking>
cudaError_t launch_route(const PackedRouteArgs& args, cudaStream_t stream) {
  using Tile = ManyTile<kPacking>;
  const WeightRef& weight = args.logits.router.weight;
  const std::size_t choice_bytes =
      static_cast<std::size_t>(ChoiceMemory::words(args.choice.experts, args.choice.top_k)) * sizeof(float);
  const auto parts_of = [](std::int64_t size, int part) { return static_cast<unsigned>((size + part - 1) / part); };
  if (has_few_tokens(weight, args.logits.tokens)) {
    const dim3 grid(parts_of(weight.rows, kTileRows), kQuarters, parts_of(args.logits.tokens, kGroupTokens));
    return launch_dependent(route_few_kernel<kPacking>, grid, kFewWarps * kWarp, kFewWarps * choice_bytes, stream,
                            args);
  }
  const dim3 grid(parts_of(weight.rows, Tile::kRows), parts_of(args.logits.tokens, Tile::kTokens));
  return launch_dependent(route_many_kernel<kPacking>, grid, kManyWarps * kWarp,
                          std::max(Tile::kBytes, kManyWarps * choice_bytes), stream, args);
}

}  // namespace

bool has_packed_route(Packing packing) { return packing == Packing::kBF16 || packing == Packing::kF32; }

std::int64_t router_sums(const WeightRef& router, std::int64_t tokens) {
  const bool are_apart = has_packed_route(router.packing) && has_few_tokens(router, tokens);
  return tokens * router.rows * (are_apart ? kQuarters : 1);
}

cudaError_t route_packed(const RouterLogits& logits, const ChooseExperts& choice, unsigned* arrivals,
                         cudaStream_t stream) {
  const WeightRef& weight = logits.router.weight;
  const bool is_whole =
      logits.x_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits.x) % 16 == 0 && weight.cols % 4 == 0;
  const PackedRouteArgs args = {logits, choice, arrivals, is_whole};
  return weight.packing == Packing::kF32 ? launch_route<Packing::kF32>(args, stream)
                                         : launch_route<Packing::kBF16>(args, stream);
}

}  // namespace vernier::cuda
