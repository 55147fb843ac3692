// What becomes of the sums of an asynchronous product (async_product.cuh): rows of fp32, or act(gate, up) as the tiled
// input of the next product.
#pragma once

#include "backend/cuda/experts/gate_all.cuh"
#include "backend/cuda/linear/async_product.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The 256 threads that multiply.
__device__ __forceinline__ void sync_multipliers() { asm volatile("bar.sync 1, 256;\n" ::: "memory"); }

/// What a row's sums go through, as finish_product() has it.
struct RowFinish {
  float rescale;
  float factor;
  float bias;
  bool divides;
  bool has_bias;

  static __device__ RowFinish of(const MatrixRef& matrix, int row) {
    const WeightRef& w = matrix.weight;
    const int at = min(row, w.rows - 1);
    return {w.rescale, w.row_factors != nullptr ? w.row_factors[at] : w.factor,
            matrix.bias != nullptr ? matrix.bias[at] : 0.0F, w.divides, matrix.bias != nullptr};
  }
};

/// A thread's finished sums: value i is of row i % 4 / 2 and token i / 4 * 8 + 2 t + i % 2. The terms of a token, where
/// there are three, lie 16 apart.
template <int kBlocks, int kValues>
__device__ __forceinline__ void finish_sums(const AsyncJob& job, int row, float (&totals)[16 * kBlocks],
                                            float (&values)[kValues]) {
  const RowFinish low = RowFinish::of(*job.matrix, row);
  const RowFinish high = RowFinish::of(*job.matrix, row + 8);
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    float sum = totals[i];
    if constexpr (kValues < 16 * kBlocks) sum = add_terms(totals[i], totals[kValues + i], totals[2 * kValues + i]);
    values[i] = sum * low.rescale;
  }
  if (low.divides) {  // alike for both
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = __fdiv_rn(values[i], i % 4 < 2 ? low.factor : high.factor);
  } else {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = __fmul_rn(values[i], i % 4 < 2 ? low.factor : high.factor);
  }
  if (low.has_bias) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = __fadd_rn(values[i], i % 4 < 2 ? low.bias : high.bias);
  }
}

/// Where the tokens' rows are: first all addresses, then all sums to add to, then the stores, so that nothing waits for
/// more than one of them.
template <int kValues>
__device__ __forceinline__ void store_rows(const AsyncJob& job, int row, float (&values)[kValues]) {
  constexpr int kTokens = kValues / 2;
  const ProductJob& product = job.product;
  const int first = product.first_token + static_cast<int>(threadIdx.x) % 4 * 2;
  const int end = job.stores ? product.end_token : 0;
  const bool has[2] = {row < job.matrix->weight.rows, row + 8 < job.matrix->weight.rows};
  int at[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const int token = first + i / 2 * 8 + i % 2;
    at[i] = token < end ? static_cast<int>(product.y_row(token)) : -1;
  }
  if (product.accumulate) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int place = at[i / 4 * 2 + i % 2];
      if (place >= 0 && has[i % 4 / 2]) {
        values[i] = __fadd_rn(product.y[place * product.y_stride + row + i % 4 / 2 * 8], values[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int place = at[i / 4 * 2 + i % 2];
    if (place >= 0 && has[i % 4 / 2]) product.y[place * product.y_stride + row + i % 4 / 2 * 8] = values[i];
  }
}

/// The same where all rows and tokens are there, and the tokens' rows one after the other: with a small part of the
/// instructions.
template <int kValues>
__device__ __forceinline__ void store_whole_rows(const AsyncJob& job, int row, float (&values)[kValues]) {
  const ProductJob& product = job.product;
  const std::int64_t stride = product.y_stride;
  const std::int64_t first = product.first_y_row + product.first_token + static_cast<int>(threadIdx.x) % 4 * 2;
  float* const y = product.y + first * stride + row;
  const auto place = [y, stride](int i) { return y + (i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8; };
  if (product.accumulate) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = __fadd_rn(*place(i), values[i]);
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) *place(i) = values[i];
}
/// Whether that holds for a tile of so many tokens; alike for a warp.
__device__ __forceinline__ bool is_whole(const AsyncJob& job, int row, int tokens) {
  return job.stores && job.product.y_rows == nullptr && job.product.end_token - job.product.first_token == tokens &&
         row - static_cast<int>(threadIdx.x) % 32 / 4 + kTileRows <= job.matrix->weight.rows;
}

/// One value of act(gate, up) into a tile, or its terms into as many.
template <int kTerms>
__device__ __forceinline__ void put_hidden(float value, std::byte* at) {
  if constexpr (kTerms == 1) {
    *reinterpret_cast<std::uint16_t*>(at) = static_cast<std::uint16_t>(round_pair(value, 0.0F));
    return;
  }
  const Bf16Terms split = split_terms(value);
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    *reinterpret_cast<std::uint16_t*>(at + term * kTileBytes) = upper_half(split.term[term]);
  }
}

/// Group 0 has the sums of gate, group 1 those of up, of kValues / 2 tokens. They meet 32 tokens at a time: a group
/// then takes every other token.
template <int kTerms, int kValues, class Exchange>
__device__ __forceinline__ void store_gated(const AsyncJob& job, const ActivationSpec& spec, const TiledInput& hidden,
                                            float (&values)[kValues], Exchange& exchange) {
  constexpr int kAtOnce = 16;
  int own = static_cast<int>(threadIdx.x);
  asm volatile(""
               : "+r"(own));  // else what follows from it is made once for all jobs, and takes registers all the while
  const int group = own / 128;
  const int thread = own % 128;
  const int col = thread / 32 * 16 + thread % 32 / 4;
  const int cols = job.matrix->weight.rows - job.row;  // the others become zeros
  const int token = thread % 4 * 2 + group;            // and every eighth from there
  const bool has[2] = {col < cols, col + 8 < cols};
  const int at[2] = {tiled_offset(token, col), tiled_offset(token, col + 8)};
  std::byte* tile = exchange.tiles;
#pragma unroll 1
  for (int begin = 0; begin < kValues; begin += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) exchange.values[group][i][thread] = values[i];
#pragma unroll
    for (int i = kAtOnce; i < kValues; ++i) values[i - kAtOnce] = values[i];
    sync_multipliers();
    float gate[kAtOnce / 2];
    float up[kAtOnce / 2];
#pragma unroll
    for (int i = 0; i < kAtOnce / 2; ++i) {
      gate[i] = exchange.values[0][2 * i + group][thread];
      up[i] = exchange.values[1][2 * i + group][thread];
    }
    gate_all(spec, gate, up);
#pragma unroll
    for (int i = 0; i < kAtOnce / 2; ++i) {
      put_hidden<kTerms>(has[i % 2] ? gate[i] : 0.0F, tile + at[i % 2] + i / 2 * tiled_offset(8, 0));
    }
    tile += kTerms * kTileBytes;
    sync_multipliers();
  }
  if (job.stores) {
    constexpr int kPieces = kTileBytes / 16;
    for (int i = own; i < job.blocks * kPieces; i += 256) {
      reinterpret_cast<uint4*>(hidden.tile(job.block + i / kPieces, job.row / kUnitCols))[i % kPieces] =
          reinterpret_cast<const uint4*>(exchange.tiles)[i];
    }
  }
}

#endif

}  // namespace vernier::cuda
