// Launches of AsyncGroups for one packing; the .cu files beside this compile some packings each.
#pragma once

#include "backend/cuda/linear/async_groups.cuh"
#include "backend/cuda/linear/async_groups_kernels.h"
#include "backend/cuda/linear/async_launch.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Packing kPacking>
struct AsyncGroupsBlock {
  using Product = AsyncGroups<kPacking>;
  using Shared = typename Product::Shared;

  /// Job `number`, which is found out once more for the store, as AsyncBlock does.
  template <int kBlocks>
  static __device__ __forceinline__ void run(const AsyncSource& source, const AsyncJob& early, int number,
                                             typename Product::InputPlace& at, typename Product::CodePlace& codes_at,
                                             Shared& shared) {
    float totals[16 * kBlocks];
    Product::template multiply<kBlocks>(early, at, codes_at, shared, totals);
    asm volatile("" : "+r"(number));
    const AsyncJob job = async_any_job(source, number, static_cast<int>(threadIdx.x) / 128);
    const int row = job.row + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    float values[16 * kBlocks];
    finish_sums<kBlocks>(job, row, totals, values);
    if (is_whole(job, row, kBlocks * kBlockTokens)) {
      store_whole_rows(job, row, values);
    } else {
      store_rows(job, row, values);
    }
  }

  static __device__ void run_all(const AsyncSource& source, Shared& shared) {
    Product::init(shared);
    release_successor();
    wait_for_predecessor();
    const int count = async_job_count(source);
    const int group = static_cast<int>(threadIdx.x) / 128;  // 2: the warps that ask
    const int clusters = static_cast<int>(gridDim.x) / 2;
    typename Product::InputPlace at;
    typename Product::CodePlace codes_at;
    if (group == 2) {
      give_registers<40>();
      if (threadIdx.x % 32 == 0) {
        const bool is_of_input = threadIdx.x % 128 / 32 < 2;
        for (int i = static_cast<int>(blockIdx.x) / 2; i < count; i += clusters) {
          const AsyncJob now = async_any_job(source, i, group);
          if (is_of_input) {
            Product::produce_input(now, source.x, at, shared);
          } else {
            Product::produce_codes(now, codes_at, shared);
          }
        }
      }
    } else {
      take_registers<232>();
      for (int i = static_cast<int>(blockIdx.x) / 2; i < count; i += clusters) {
        const AsyncJob now = async_any_job(source, i, group);
        if (now.blocks == 1) {
          run<1>(source, now, i, at, codes_at, shared);
        } else if (now.blocks == 2) {
          run<2>(source, now, i, at, codes_at, shared);
        } else {
          run<4>(source, now, i, at, codes_at, shared);  // also of 3: sums of the fourth come to nothing
        }
      }
    }
    __syncwarp();
    sync_cluster();  // the other block may still copy into this one's memory, or arrive at its barriers
  }
};

#endif

template <Packing kPacking>
__global__ void __launch_bounds__(kAsyncThreads, 1) async_groups_kernel(const __grid_constant__ AsyncSource source) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(sizeof(GroupsShared<kPacking>) <= kAsyncSharedBytes);
  extern __shared__ __align__(1024) unsigned char memory[];
  AsyncGroupsBlock<kPacking>::run_all(source, *reinterpret_cast<GroupsShared<kPacking>*>(memory));
#endif
}

template <Packing kPacking>
cudaError_t launch_async_groups(const AsyncSource& source, const AsyncLaunch& how) {
  return launch_clusters(async_groups_kernel<kPacking>, source, how);
}

}  // namespace vernier::cuda
