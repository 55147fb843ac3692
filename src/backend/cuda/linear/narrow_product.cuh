// Products with few tokens: reading the weights is the work. A block takes one or two row tiles at a time; its eight
// warps cut the columns among them, each streams its share of the packed weights into registers and multiplies on
// tensor cores with weights as the 16 rows and tokens (each of their bf16 terms one) as the columns. The eight partial
// sums are added in their order at the end, while the next tile's weights are on their way. Where rows are short, fewer
// warps share a tile and the block takes more of them.
//
// The columns' cut depends on the weight alone, so a row's result does not depend on how many tokens there are.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// kTiles row tiles (2: of one weight, or where kGated the same tile of gate and up) and 8 * kGroups columns.
template <Packing kPacking, int kTiles, int kGroups, bool kGated>
struct NarrowProduct {
  using Stage = typename StageOf<kPacking>::Type;
  static constexpr int kThreads = kSegments * 32;
  static constexpr int kColumns = kGroups * 8;
  static constexpr int kRowTiles = kGated ? 1 : kTiles;  ///< of each matrix
  /// Blocks that shall fit on a multiprocessor: with fewer registers, more bytes are on their way.
  static constexpr int kBlocksAtOnce = kTiles * kGroups > 4 || (kGroups > 2 && Stage::kGroupCols > 0) ? 1 : 2;
  static constexpr int kPadding = 8;  ///< of a column in shared memory: its reads then meet no bank conflicts
  using Sums = float[kTiles][kGroups][4];
  /// Partial sums of all warps.
  using Partials = float[kSegments][kTiles][kColumns][kTileRows];

  /// A run's tokens: [first, first + count) of the job.
  struct Tokens {
    int first;
    int count;
  };

  static __device__ const MatrixRef& matrix(const ProductJob& job, int tile) {
    return kGated && tile == 1 ? *job.second : *job.matrix;
  }
  /// How a block's warps are dealt: `warps` share a row tile (or two), `copies` of such.
  struct Deal {
    int warps;
    int copies;
  };
  static __host__ __device__ Deal deal(int units) {
    const int warps = warps_per_tile(units);
    return {warps, kSegments / warps};
  }
  static __device__ int row_tile(const ProductJob& job, Deal deal, int copy, int tile) {
    return (job.tile * deal.copies + copy) * kRowTiles + (kGated ? 0 : tile);
  }

  /// Four columns of fp32 input, zeros beyond the last.
  static __device__ __forceinline__ float4 load_columns(const float* x, int col, int cols, bool aligned) {
    if (aligned && col + 4 <= cols) return *reinterpret_cast<const float4*>(x + col);
    return make_float4(col < cols ? x[col] : 0.0F, col + 1 < cols ? x[col + 1] : 0.0F,
                       col + 2 < cols ? x[col + 2] : 0.0F, col + 3 < cols ? x[col + 3] : 0.0F);
  }

  /// Rounds the job's rows of fp32 input into shared memory.
  static __device__ void stage_input(const ProductJob& job, Tokens tokens, int cols, int stride,
                                     std::uint16_t* shared) {
    const int terms = job.x.terms;
    const int padded = stride - kPadding;
    for (int token = 0; token < tokens.count; ++token) {
      const float* x = job.x.data + job.x_row(tokens.first + token) * job.x.stride;
      const bool aligned = (reinterpret_cast<std::uintptr_t>(x) & 15) == 0;
      std::uint16_t* const out = shared + token * terms * stride;
#pragma unroll 4
      for (int col = static_cast<int>(threadIdx.x) * 4; col < padded; col += kThreads * 4) {
        const float4 v = load_columns(x, col, cols, aligned);
        if (terms == 1) {
          *reinterpret_cast<uint2*>(out + col) = make_uint2(round_pair(v.x, v.y), round_pair(v.z, v.w));
          continue;
        }
        const Bf16Terms split[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
        for (int term = 0; term < 3; ++term) {
          *reinterpret_cast<uint2*>(out + term * stride + col) =
              make_uint2(pack_upper_halves(split[0].term[term], split[1].term[term]),
                         pack_upper_halves(split[2].term[term], split[3].term[term]));
        }
      }
    }
  }

  /// The lane's columns of B, one in each group of 8. Those beyond the last are the last again: their sums are dropped.
  struct Columns {
    const std::uint16_t* at[kGroups];
  };
  static __device__ Columns find_columns(const ProductJob& job, Tokens tokens, const std::uint16_t* shared,
                                         int stride) {
    Columns columns;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int terms = job.x.terms;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = min(group * 8 + lane / 4, tokens.count * terms - 1);
      if (job.x.rounded == nullptr) {
        columns.at[group] = shared + column * stride + lane % 4 * kLaneCols;
      } else {
        const std::int64_t row = job.x_row(tokens.first + column / terms) * terms + column % terms;
        columns.at[group] = job.x.rounded + row * job.x.rounded_stride + lane % 4 * kLaneCols;
      }
    }
    return columns;
  }

  /// A lane's part of B in one unit: the words of fragment f are half f % 2 of group f / 2's.
  using InputUnit = uint4[kGroups][2];
  /// How far apart the lanes t of a column begin, and the two halves of their 16 columns.
  static constexpr int kLaneCols = Stage::kGroupCols == 0 ? 16 : Stage::kGroupCols / 4;
  static constexpr int kHalfCols = Stage::kGroupCols == 0 ? 8 : 32;

  static __device__ __forceinline__ void load_unit(const Columns& columns, int unit, InputUnit& b) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const std::uint16_t* from = columns.at[group] + unit * kUnitCols;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Stage::kGroupCols == 16) {
          const uint2 first = *reinterpret_cast<const uint2*>(from + half * kHalfCols);
          const uint2 second = *reinterpret_cast<const uint2*>(from + half * kHalfCols + 16);
          b[group][half] = make_uint4(first.x, first.y, second.x, second.y);
        } else {
          b[group][half] = *reinterpret_cast<const uint4*>(from + half * kHalfCols);
        }
      }
    }
  }
  static __device__ __forceinline__ FragmentB fragment_of(const uint4 (&b)[2], int fragment) {
    const uint4& words = b[fragment / 2];
    return fragment % 2 == 0 ? FragmentB{{words.x, words.y}} : FragmentB{{words.z, words.w}};
  }

  using Biases = std::uint32_t[kTiles];

  static __device__ __forceinline__ void multiply_unit(const Stage (&stage)[kTiles], int i, const Biases& bias,
                                                       const InputUnit& b, Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      FragmentA a[4];
      stage[tile].decode(i, bias[tile], a);
#pragma unroll
      for (int fragment = 0; fragment < 4; ++fragment) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          multiply_add(sums[tile][group], a[fragment], fragment_of(b[group], fragment));
        }
      }
    }
  }

  /// Weights whose decoded codes lack the scale of their group: it multiplies the group's sum, and a minimum the sum of
  /// the group's inputs, which a row of ones gives.
  static __device__ __forceinline__ void multiply_groups(const Stage (&stage)[kTiles], int i, const Biases& bias,
                                                         const InputUnit& b, Sums& sums) {
    constexpr int kFragments = Stage::kGroupCols / 16;  // of a group
    constexpr std::uint32_t kOnes = 0x3F803F80;
    FragmentA a[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode(i, bias[tile], a[tile]);
#pragma unroll
    for (int at = 0; at < 4 / kFragments; ++at) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float inputs[4] = {};
#pragma unroll
        for (int f = 0; f < kFragments && Stage::kHasMinimum; ++f) {
          multiply_add(inputs, {{kOnes, kOnes, kOnes, kOnes}}, fragment_of(b[group], at * kFragments + f));
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          float part[4] = {};
#pragma unroll
          for (int f = 0; f < kFragments; ++f) {
            const int fragment = at * kFragments + f;
            multiply_add(part, a[tile][fragment], fragment_of(b[group], fragment));
          }
          const GroupScale scale = stage[tile].group_scale(i, at);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float& sum = sums[tile][group][j];
            sum = __fmaf_rn(scale.scale[j / 2], part[j], sum);
            if (Stage::kHasMinimum) sum = __fmaf_rn(-scale.minimum[j / 2], inputs[j], sum);
          }
        }
      }
    }
  }

  /// Sums of one tile of a scale grid, times its scale.
  static __device__ __forceinline__ void add_scaled(const float* const (&grid)[kTiles][2], int unit, Sums& part,
                                                    Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float low = grid[tile][0][unit * kUnitCols / Stage::kGridCols];
      const float high = grid[tile][1][unit * kUnitCols / Stage::kGridCols];
#pragma unroll
      for (int i = 0; i < kGroups * 4; ++i) {
        float& from = part[tile][i / 4][i % 4];
        sums[tile][i / 4][i % 4] = __fmaf_rn(i % 4 < 2 ? low : high, from, sums[tile][i / 4][i % 4]);
        from = 0.0F;
      }
    }
  }

  /// What a warp keeps of the weights: where its share is.
  struct Share {
    TileCursor cursor[kTiles];
    const float* grid[kTiles][2];
    Biases bias;
    int begin;
    int end;
  };

  static __device__ Share find_share(const ProductJob& job, Deal deal) {
    Share share;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const WeightRef& w = matrix(job, tile).weight;
      const int last = (w.rows - 1) / kTileRows;
      const int at = min(row_tile(job, deal, warp / deal.warps, tile),
                         last);  // a tile too many repeats the last; its sums are dropped
      share.cursor[tile] = tile_cursor<kPacking>(w, at, lane);
      share.bias[tile] = w.scale_bias;
      if constexpr (Stage::kGridCols > 0) {
        const int row = at * kTileRows + lane / 4;
        share.grid[tile][0] = grid_row(w, min(row, w.rows - 1));
        share.grid[tile][1] = grid_row(w, min(row + 8, w.rows - 1));
      }
    }
    const int units = share.cursor[0].units;
    if (deal.copies == 1) {
      share.begin = segment_begin(units, warp);
      share.end = segment_begin(units, warp + 1);
    } else {
      share.begin = min(warp % deal.warps * kChunkUnits, units);
      share.end = min(share.begin + kChunkUnits, units);
    }
    return share;
  }

  static __device__ __forceinline__ void ask_for_first(const Share& share, Stage (&next)[kTiles]) {
    if (share.begin >= share.end) return;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) next[tile].load(share.cursor[tile], share.begin);
  }

  static __device__ void multiply(const Share& share, Stage (&next)[kTiles], const Columns& columns, Sums& sums) {
    Sums part = {};
    for (int unit = share.begin; unit < share.end; unit += Stage::kUnits) {
      Stage now[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        now[tile] = next[tile];
        if (unit + Stage::kUnits < share.end) next[tile].load(share.cursor[tile], unit + Stage::kUnits);
      }
#pragma unroll
      for (int i = 0; i < Stage::kUnits; ++i) {
        if (unit + i >= share.end) break;
        InputUnit b;
        load_unit(columns, unit + i, b);
        if constexpr (Stage::kGroupCols > 0) {
          multiply_groups(now, i, share.bias, b, sums);
        } else {
          multiply_unit(now, i, share.bias, b, Stage::kGridCols > 0 ? part : sums);
        }
      }
      if constexpr (Stage::kGridCols > 0) add_scaled(share.grid, unit, part, sums);
    }
  }

  static __device__ void leave_partials(const Sums& sums, Partials& partials) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < kTiles * kGroups * 4; ++i) {
      const int tile = i / 4 / kGroups;
      const int group = i / 4 % kGroups;
      partials[warp][tile][group * 8 + lane % 4 * 2 + i % 2][lane / 4 + i % 4 / 2 * 8] = sums[tile][group][i % 4];
    }
  }

  /// The finished sum of a row and token, from the partial sums of warps [first, first + count).
  static __device__ float add_partials(const Partials& partials, int first, int count, int tile, int row, int column,
                                       int terms) {
    float total[3] = {};
    for (int term = 0; term < terms; ++term) {
      total[term] = partials[first][tile][column + term][row];
      for (int warp = first + 1; warp < first + count; ++warp) {
        total[term] = __fadd_rn(total[term], partials[warp][tile][column + term][row]);
      }
    }
    return terms == 1 ? total[0] : add_terms(total[0], total[1], total[2]);
  }

  static __device__ void store(const ProductJob& job, Tokens tokens, Deal deal, const GatedOutput& gated_output,
                               const Partials& partials) {
    const int terms = job.x.terms;
    constexpr int kStoredTiles = kGated ? 1 : kTiles;
    const int tiles = deal.copies * kStoredTiles;
    for (int i = static_cast<int>(threadIdx.x); i < tokens.count * tiles * kTileRows; i += kThreads) {
      const int r = i % kTileRows;
      const int copy = i / kTileRows % tiles / kStoredTiles;
      const int tile = i / kTileRows % kStoredTiles;
      const int token = i / kTileRows / tiles;
      const int row = row_tile(job, deal, copy, tile) * kTileRows + r;
      const MatrixRef& first = matrix(job, tile);
      if (row >= first.weight.rows) continue;
      const auto sum_of = [&](int which) {
        return add_partials(partials, copy * deal.warps, deal.warps, which, r, token * terms, terms) *
               matrix(job, which).weight.rescale;
      };
      const std::int64_t y_row = job.y_row(tokens.first + token);
      if constexpr (kGated) {
        const float value = gated(gated_output.spec, finish_product(first, row, sum_of(0), nullptr),
                                  finish_product(matrix(job, 1), row, sum_of(1), nullptr));
        store_terms(gated_output.hidden + y_row * terms * gated_output.stride + row, gated_output.stride, terms, value);
      } else {
        float* y = job.y + y_row * job.y_stride + row;
        *y = finish_product(first, row, sum_of(tile), job.accumulate ? y : nullptr);
      }
    }
  }

  static __device__ void store_terms(std::uint16_t* to, std::int64_t stride, int terms, float value) {
    if (terms == 1) {
      *to = static_cast<std::uint16_t>(round_pair(value, 0.0F));
      return;
    }
    const Bf16Terms split = split_terms(value);
    for (int term = 0; term < 3; ++term) to[term * stride] = upper_half(split.term[term]);
  }

  /// A block's way through its jobs, and through the tokens of each, kColumns at a time.
  template <class Jobs>
  struct Walk {
    const Jobs& jobs;
    int number;
    ProductJob job;
    Tokens tokens;

    __device__ explicit Walk(const Jobs& all) : jobs(all), number(static_cast<int>(blockIdx.x)), tokens{0, 0} {
      enter();
    }
    [[nodiscard]] __device__ bool ended() const { return number >= jobs.count; }
    /// To the tokens that follow, or the next job that has any.
    __device__ void step() {
      tokens.first += tokens.count;
      if (tokens.first < job.end_token) {
        take_tokens();
      } else {
        number += static_cast<int>(gridDim.x);
        enter();
      }
    }

   private:
    __device__ void enter() {
      for (; number < jobs.count; number += static_cast<int>(gridDim.x)) {
        job = jobs.job(number);
        tokens.first = job.first_token;
        if (job.first_token < job.end_token) return take_tokens();
      }
    }
    __device__ void take_tokens() { tokens.count = min(kColumns / job.x.terms, job.end_token - tokens.first); }
  };

  /// All threads of a block. The weights of a first job are asked for before the input is there. Input in fp32 is the
  /// same for all jobs and fits into one run.
  template <class Jobs>
  static __device__ void run(const Jobs& jobs, const GatedOutput& gated_output, unsigned char* memory) {
    auto* const partials = reinterpret_cast<Partials*>(memory);
    auto* const input = reinterpret_cast<std::uint16_t*>(memory + 2 * sizeof(Partials));
    Walk<Jobs> walk(jobs);
    if (walk.ended()) return wait_for_predecessor();
    const int units = matrix(walk.job, 0).weight.units;
    const Deal warps = deal(units);
    const int stride = units * kUnitCols + kPadding;
    Share share = find_share(walk.job, warps);
    Stage next[kTiles];
    ask_for_first(share, next);
    wait_for_predecessor();
    if (walk.job.x.rounded == nullptr) {
      stage_input(walk.job, walk.tokens, matrix(walk.job, 0).weight.cols, stride, input);
      __syncthreads();
    }
    for (int turn = 0; !walk.ended(); turn ^= 1) {
      const ProductJob job = walk.job;
      const Tokens tokens = walk.tokens;
      walk.step();
      Sums sums = {};
      multiply(share, next, find_columns(job, tokens, input, stride), sums);
      if (!walk.ended()) {
        share = find_share(walk.job, warps);
        ask_for_first(share, next);
      }
      leave_partials(sums, partials[turn]);
      __syncthreads();  // two sets of partial sums: the other's readers are past this
      store(job, tokens, warps, gated_output, partials[turn]);
    }
  }
};

}  // namespace vernier::cuda
