// Products with few tokens: reading the weights is the work. A block takes one or two row tiles; its eight warps cut
// the columns among them, each streams its share of the packed weights into registers and multiplies on tensor cores
// with weights as the 16 rows and tokens (each of their bf16 terms one) as the columns. The eight partial sums are
// added in their order at the end.
//
// The columns' cut depends on the weight alone, so a row's result does not depend on how many tokens there are.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/predecessor.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"

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
  /// Partial sums of all warps, once the input is no longer needed.
  using Partials = float[kSegments][kTiles][kColumns][kTileRows];

  /// A run's tokens: [first, first + count) of the job.
  struct Tokens {
    int first;
    int count;
  };

  static __device__ const MatrixRef& matrix(const ProductJob& job, int tile) {
    return kGated && tile == 1 ? *job.second : *job.matrix;
  }
  static __device__ int row_tile(const ProductJob& job, int tile) {
    return kGated ? job.tile : job.tile * kTiles + tile;
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

  static __device__ Share find_share(const ProductJob& job) {
    Share share;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const WeightRef& w = matrix(job, tile).weight;
      const int last = (w.rows - 1) / kTileRows;
      const int at = min(row_tile(job, tile), last);  // a tile too many repeats the last; its sums are dropped
      share.cursor[tile] = tile_cursor<kPacking>(w, at, lane);
      share.bias[tile] = w.scale_bias;
      if constexpr (Stage::kGridCols > 0) {
        const int row = at * kTileRows + lane / 4;
        share.grid[tile][0] = grid_row(w, min(row, w.rows - 1));
        share.grid[tile][1] = grid_row(w, min(row + 8, w.rows - 1));
      }
    }
    const int units = share.cursor[0].units;
    share.begin = segment_begin(units, warp);
    share.end = segment_begin(units, warp + 1);
    return share;
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

  /// The finished sum of a row and token.
  static __device__ float add_partials(const Partials& partials, int tile, int row, int column, int terms) {
    float total[3] = {};
    for (int term = 0; term < terms; ++term) {
      total[term] = partials[0][tile][column + term][row];
      for (int warp = 1; warp < kSegments; ++warp) {
        total[term] = __fadd_rn(total[term], partials[warp][tile][column + term][row]);
      }
    }
    return terms == 1 ? total[0] : add_terms(total[0], total[1], total[2]);
  }

  static __device__ void store(const ProductJob& job, Tokens tokens, const GatedOutput& gated_output,
                               const Partials& partials) {
    const int terms = job.x.terms;
    constexpr int kStoredTiles = kGated ? 1 : kTiles;
    for (int i = static_cast<int>(threadIdx.x); i < tokens.count * kStoredTiles * kTileRows; i += kThreads) {
      const int tile = i / kTileRows % kStoredTiles;
      const int token = i / kTileRows / kStoredTiles;
      const int row = row_tile(job, tile) * kTileRows + i % kTileRows;
      const MatrixRef& first = matrix(job, tile);
      if (row >= first.weight.rows) continue;
      const float sum = add_partials(partials, tile, i % kTileRows, token * terms, terms) * first.weight.rescale;
      const std::int64_t y_row = job.y_row(tokens.first + token);
      if constexpr (kGated) {
        const MatrixRef& second = matrix(job, 1);
        const float other = add_partials(partials, 1, i % kTileRows, token * terms, terms) * second.weight.rescale;
        const float value = gated(gated_output.spec, finish_product(first, row, sum, nullptr),
                                  finish_product(second, row, other, nullptr));
        store_terms(gated_output.hidden + y_row * terms * gated_output.stride + row, gated_output.stride, terms, value);
      } else {
        float* y = job.y + y_row * job.y_stride + row;
        *y = finish_product(first, row, sum, job.accumulate ? y : nullptr);
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

  /// All threads of a block. The weights of a first run are asked for before the input is there.
  static __device__ void run(const ProductJob& job, const GatedOutput& gated_output, unsigned char* memory) {
    const Share share = find_share(job);
    const int cols = matrix(job, 0).weight.cols;
    const int stride = share.cursor[0].units * kUnitCols + kPadding;
    auto* const input = reinterpret_cast<std::uint16_t*>(memory);
    auto& partials = *reinterpret_cast<Partials*>(memory);
    const int most = kColumns / job.x.terms;
    for (int first = job.first_token; first < job.end_token; first += most) {
      const Tokens tokens = {first, min(most, job.end_token - first)};
      Stage next[kTiles];
      if (share.begin < share.end) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) next[tile].load(share.cursor[tile], share.begin);
      }
      wait_for_predecessor();
      if (job.x.rounded == nullptr) {
        stage_input(job, tokens, cols, stride, input);
        __syncthreads();
      }
      Sums sums = {};
      multiply(share, next, find_columns(job, tokens, input, stride), sums);
      __syncthreads();
      leave_partials(sums, partials);
      __syncthreads();
      store(job, tokens, gated_output, partials);
      __syncthreads();
    }
  }
};

}  // namespace vernier::cuda
