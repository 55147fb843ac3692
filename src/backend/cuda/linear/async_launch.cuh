// Launches of AsyncProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/async_clusters.cuh"
#include "backend/cuda/linear/async_grid.cuh"
#include "backend/cuda/linear/async_kernels.h"
#include "backend/cuda/linear/async_store.cuh"
#include "backend/cuda/linear/async_wide.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kRowsOfBlock = 128;
/// Tiles of tokens that blocks take together, row by row: their input stays in the caches.
constexpr int kTokenTilesAtOnce = 8;

/// Rows of each matrix that a block takes: gate and up share one.
__device__ inline int async_rows(const AsyncSource& source) {
  return source.hidden.data != nullptr ? kRowsOfBlock / 2 : kRowsOfBlock;
}

/// The job of a group of warps, of which `product` says which matrices, row tile and tokens.
__device__ inline AsyncJob async_job(const AsyncSource& source, const ProductJob& product, int group) {
  const bool gated = source.hidden.data != nullptr;
  const int rows = async_rows(source);
  AsyncJob job;
  job.product = product;
  job.matrix = gated && group == 1 ? product.second : product.matrix;
  job.row = product.tile * rows + (gated ? 0 : group * kRowsOfBlock / 2);
  job.tile = product.tile * (rows / kTileRows);
  const int tokens = product.end_token - product.first_token;
  job.blocks = (tokens + kBlockTokens - 1) / kBlockTokens * source.x.terms;
  return job;
}

/// Of a linear.
__device__ inline AsyncJob async_linear_job(const AsyncSource& source, int number, int group) {
  const int pairs = (source.row_tiles + 1) / 2;
  const int at_once = source.blocks > 4 ? kTokenTilesAtOnce / 2 : kTokenTilesAtOnce;
  const int begin = number / (pairs * at_once) * at_once;
  const int rest = number - begin * pairs;
  const int width = min(at_once, source.token_tiles - begin);
  const int row_tile = rest / width * 2 + static_cast<int>(cluster_rank());
  const int token_tile = begin + rest % width;
  const int most = source.blocks * kBlockTokens / source.x.terms;
  ProductJob product = linear_job(source.linear, {async_rows(source), most}, min(row_tile, source.row_tiles - 1), 0);
  product.second = &source.linear.matrix[1];
  product.first_token = token_tile * most;
  product.end_token = min(product.first_token + most, source.linear.tokens);
  AsyncJob job = async_job(source, product, group);
  job.block = token_tile * source.blocks;
  job.stores = row_tile < source.row_tiles;
  return job;
}

/// Of experts.
__device__ inline AsyncJob async_expert_job(const AsyncSource& source, int number, int group) {
  const int pairs = (source.row_tiles + 1) / 2;
  const TokenTile tile = source.tiles.tile[number / pairs];
  const int row_tile = number % pairs * 2 + static_cast<int>(cluster_rank());
  ProductJob product = expert_job(source.experts, async_rows(source), min(row_tile, source.row_tiles - 1), tile.group);
  product.first_token = tile.first;
  product.end_token = tile.first + tile.count;
  AsyncJob job = async_job(source, product, group);
  job.block = tile.block;
  job.stores = row_tile < source.row_tiles;
  return job;
}

/// Of what the source has.
__device__ inline AsyncJob async_any_job(const AsyncSource& source, int number, int group) {
  return source.experts.top_k > 0 ? async_expert_job(source, number, group) : async_linear_job(source, number, group);
}
__device__ inline int async_job_count(const AsyncSource& source) {
  const int pairs = (source.row_tiles + 1) / 2;
  return pairs * (source.experts.top_k > 0 ? *source.tiles.count : source.token_tiles);
}

/// With kTerms columns a token, and tiles of up to kMost blocks of 32 columns.
template <Packing kPacking, int kTerms, int kMost>
struct AsyncBlock {
  using Product = AsyncProduct<kPacking, kMost>;
  using Shared = typename Product::Shared;
  using Place = typename Product::Place;

  template <int kBlocks, int kValues>
  static __device__ __forceinline__ void store(const AsyncSource& source, const AsyncJob& job,
                                               float (&totals)[16 * kBlocks], Shared& shared) {
    const int row = job.row + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    float values[kValues];
    finish_sums<kBlocks>(job, row, totals, values);
    if (source.hidden.data != nullptr) {
      if (Shared::kTotals > 0) sync_multipliers();  // the other group's totals
      store_gated<kTerms>(job, source.spec, source.hidden, values, shared.gates());
      if (Shared::kTotals > 0) sync_multipliers();
    } else if (is_whole(job, row, kValues * 2)) {
      store_whole_rows(job, row, values);
    } else {
      store_rows(job, row, values);
    }
  }

  /// Job `number`, which is found out once more for the store: else it would take registers all the while.
  template <int kBlocks>
  static __device__ __forceinline__ void run(const AsyncSource& source, const AsyncJob& early, int number, Place& at,
                                             Shared& shared) {
    float totals[16 * kBlocks];
    if constexpr (kMost > 4) {
      AsyncWide<kPacking>::multiply(early, at, shared, totals);
    } else if constexpr (Product::kHasGrid) {
      AsyncGrid<kBlocks>::multiply(early, at, shared, totals);
    } else {
      Product::template multiply<kBlocks>(early, at, shared, totals);
    }
    asm volatile("" : "+r"(number));
    const AsyncJob job = async_any_job(source, number, static_cast<int>(threadIdx.x) / 128);
    store<kBlocks, 16 * kBlocks / kTerms>(source, job, totals, shared);
  }

  static __device__ void run_all(const AsyncSource& source, Shared& shared) {
    Product::init(shared);
    release_successor();
    wait_for_predecessor();
    const int count = async_job_count(source);
    const int group = static_cast<int>(threadIdx.x) / 128;  // 2: the warp that asks
    const int clusters = static_cast<int>(gridDim.x) / 2;
    Place at;
    if (group == 2) {
      give_registers<40>();
      for (int i = static_cast<int>(blockIdx.x) / 2; i < count; i += clusters) {
        const AsyncJob now = async_any_job(source, i, group);
        const bool gated = source.hidden.data != nullptr;
        Product::produce(now, gated ? *now.product.second : *now.matrix, source.x, at, shared);
      }
    } else {
      take_registers<232>();
      for (int i = static_cast<int>(blockIdx.x) / 2; i < count; i += clusters) {
        const AsyncJob now = async_any_job(source, i, group);
        if constexpr (kTerms == 3) {
          run<3>(source, now, i, at, shared);
        } else if constexpr (kMost > 4) {
          run<kMost>(source, now, i, at, shared);
        } else if (now.blocks == 1) {
          run<1>(source, now, i, at, shared);
        } else if (now.blocks == 2) {
          run<2>(source, now, i, at, shared);
        } else {
          run<4>(source, now, i, at, shared);  // also of 3: sums of the fourth come to nothing
        }
      }
    }
    __syncwarp();
    sync_cluster();  // the other block may still copy into this one's memory, or arrive at its barriers
  }
};

#endif

/// Clusters of two blocks, a block for each multiprocessor. A kernel of its own for each number of terms, and for wide
/// tiles: in one, the compiler ran out of registers.
template <Packing kPacking, int kTerms, int kMost>
__global__ void __launch_bounds__(kAsyncThreads, 1) async_product_kernel(const __grid_constant__ AsyncSource source) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Block = AsyncBlock<kPacking, kTerms, kMost>;
  static_assert(sizeof(typename Block::Shared) <= kAsyncSharedBytes);
  extern __shared__ __align__(1024) unsigned char memory[];
  Block::run_all(source, *reinterpret_cast<typename Block::Shared*>(memory));
#endif
}

template <Packing kPacking>
cudaError_t launch_async(const AsyncSource& source, const AsyncLaunch& how) {
  if (source.x.terms == 3) return launch_clusters(async_product_kernel<kPacking, 3, 4>, source, how);
  if constexpr (has_wide_tiles(kPacking)) {
    if (source.blocks > 4) return launch_clusters(async_product_kernel<kPacking, 1, kWideBlocks>, source, how);
  }
  return launch_clusters(async_product_kernel<kPacking, 1, 4>, source, how);
}

}  // namespace vernier::cuda
