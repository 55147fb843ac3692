// The product that works for every format, shape and number of tokens: weights are decoded to fp32 in shared memory, a
// tile at a time, and multiplied by tensor cores as exact sums of bf16 terms. A row's result depends on no other row
// and not on the tile's width in tokens.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/decode_unit.cuh"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/weight_ref.h"
#include "backend/cuda/linear/product_job.cuh"

namespace vernier::cuda {

/// kTokens rows of x (a multiple of 8) as kTerms bf16 terms each: 1 rounds to bf16, 3 is exact.
template <int kTokens, int kTerms>
struct TileProduct {
  static constexpr int kThreads = 128;
  static constexpr int kRows = 64;   ///< of W, 16 a warp
  static constexpr int kCols = 256;  ///< decoded at a time: the largest block of any format
  static constexpr int kWeightStride = kCols + 1;
  static constexpr int kInputStride = kCols + 16;
  static constexpr int kGroups = kTokens / 8;

  struct Shared {
    float weights[kRows * kWeightStride];
    alignas(16) std::uint16_t input[kTerms][kTokens * kInputStride];
  };

  /// Columns [begin, end) of the weight; what is missing up to a multiple of 16 becomes zero.
  static __device__ void load_weights(const ProductJob& job, int begin, int end, Shared& shared) {
    const WeightRef& w = job.matrix->weight;
    const int unit = w.unit_values;
    const int units = (end - begin + unit - 1) / unit;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * units; i += kThreads) {
      const int row = i % kRows;
      const int first = i / kRows * unit;
      float* out = shared.weights + row * kWeightStride + first;
      int count = min(unit, end - begin - first);
      if (job.tile * kRows + row >= w.rows) count = 0;
      if (count > 0) decode_unit(w, job.tile * kRows + row, begin + first, count, out);
      for (int j = count; j < unit; ++j) out[j] = 0.0F;
    }
  }

  static __device__ void load_input(const ProductJob& job, int first_token, int begin, int end, Shared& shared) {
    const int pairs = (end - begin + 15) / 16 * 8;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * pairs; i += kThreads) {
      const int token = i / pairs;
      const int col = i % pairs * 2;
      float value[2] = {0.0F, 0.0F};
      if (first_token + token < job.end_token) {
        const float* x = job.x.data + job.x_row(first_token + token) * job.x.stride + begin;
        if (begin + col < end) value[0] = x[col];
        if (begin + col + 1 < end) value[1] = x[col + 1];
      }
      const int to = (token * kInputStride + col) / 2;
      if constexpr (kTerms == 1) {
        reinterpret_cast<std::uint32_t*>(shared.input[0])[to] = round_pair(value[0], value[1]);
      } else {
        const Bf16Terms low = split_terms(value[0]);
        const Bf16Terms high = split_terms(value[1]);
        for (int term = 0; term < kTerms; ++term) {
          reinterpret_cast<std::uint32_t*>(shared.input[term])[to] = pack_upper_halves(low.term[term], high.term[term]);
        }
      }
    }
  }

  using Sums = float[kGroups][kTerms][4];

  static __device__ void multiply_term(const FragmentA& a, const Shared& shared, int at, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        const uint2 b = *reinterpret_cast<const uint2*>(shared.input[term] + (group * 8 + lane / 4) * kInputStride +
                                                        at + lane % 4 * 4);
        multiply_add(sums[group][term], a, {{b.x, b.y}});
      }
    }
  }

  /// Adds the products of the `cols` columns in shared memory. Small terms of a weight come first.
  static __device__ void multiply(const Shared& shared, int terms, int cols, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const float* low_row = shared.weights + (warp * 16 + lane / 4) * kWeightStride + lane % 4 * 4;
    const float* high_row = low_row + 8 * kWeightStride;
    for (int at = 0; at < cols; at += 16) {
      float values[2][4];  // rows g and g + 8
      for (int i = 0; i < 4; ++i) {
        values[0][i] = low_row[at + i];
        values[1][i] = high_row[at + i];
      }
      if (terms == 1) {
        const FragmentA a = {
            {pack_upper_halves(values[0][0], values[0][1]), pack_upper_halves(values[1][0], values[1][1]),
             pack_upper_halves(values[0][2], values[0][3]), pack_upper_halves(values[1][2], values[1][3])}};
        multiply_term(a, shared, at, sums);
        continue;
      }
      Bf16Terms split[2][4];
      for (int i = 0; i < 8; ++i) split[i / 4][i % 4] = split_terms(values[i / 4][i % 4]);
#pragma unroll
      for (int term = 2; term >= 0; --term) {
        if (term >= terms) continue;
        FragmentA a;
        for (int word = 0; word < 4; ++word) {
          a.word[word] =
              pack_upper_halves(split[word % 2][word / 2 * 2].term[term], split[word % 2][word / 2 * 2 + 1].term[term]);
        }
        multiply_term(a, shared, at, sums);
      }
    }
  }

  /// Sums of one tile of a scale grid, times its scale.
  static __device__ void add_scaled(const ProductJob& job, int col, Sums& part, Sums& sums) {
    const WeightRef& w = job.matrix->weight;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = job.tile * kRows + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    const float low = row < w.rows ? grid_scale(w, row, col) : 0.0F;
    const float high = row + 8 < w.rows ? grid_scale(w, row + 8, col) : 0.0F;
#pragma unroll
    for (int i = 0; i < kGroups * kTerms * 4; ++i) {
      float& from = part[i / 4 / kTerms][i / 4 % kTerms][i % 4];
      float& to = sums[i / 4 / kTerms][i / 4 % kTerms][i % 4];
      to = __fmaf_rn(i % 4 < 2 ? low : high, from, to);
      from = 0.0F;
    }
  }

  static __device__ void store(const ProductJob& job, int first_token, const Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      const int group = i / 4;
      const int row = job.tile * kRows + warp * 16 + lane / 4 + i % 4 / 2 * 8;
      const int token = first_token + group * 8 + lane % 4 * 2 + i % 2;
      if (row >= job.matrix->weight.rows || token >= job.end_token) continue;
      float sum = sums[group][0][i % 4];
      if constexpr (kTerms == 3) sum = add_terms(sum, sums[group][1][i % 4], sums[group][2][i % 4]);
      float* y = job.y + job.y_row(token) * job.y_stride + row;
      *y = finish_product(*job.matrix, row, sum, job.accumulate ? y : nullptr);
    }
  }

  /// All of a block's threads: kRows rows of the weight and all tokens of the job.
  static __device__ void run(const ProductJob& job, Shared& shared) {
    const WeightRef& w = job.matrix->weight;
    for (int first_token = job.first_token; first_token < job.end_token; first_token += kTokens) {
      Sums part = {};
      Sums sums = {};
      for (int begin = 0; begin < w.cols;) {
        int end = min(begin + kCols, w.cols);
        if (w.has_grid) end = min(end, (begin / w.scale_block_cols + 1) * w.scale_block_cols);
        __syncthreads();
        load_weights(job, begin, end, shared);
        load_input(job, first_token, begin, end, shared);
        __syncthreads();
        multiply(shared, w.terms, (end - begin + 15) / 16 * 16, part);
        if (w.has_grid && (end == w.cols || end % w.scale_block_cols == 0)) add_scaled(job, end - 1, part, sums);
        begin = end;
      }
      store(job, first_token, w.has_grid ? sums : part);
    }
  }
};

}  // namespace vernier::cuda
