#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/host_detours.h"
#include "backend/cuda/ops/launch.h"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 512;
constexpr unsigned kMostBlocks = 32;
constexpr std::size_t kWordBytes = 4;
/// Each block's number in a line of its own.
constexpr std::size_t kFlagBytes = 64;
constexpr std::size_t kFlagsBytes = kMostBlocks * kFlagBytes;
/// More than this a copy moves as fast.
constexpr std::size_t kMostShared = std::size_t{256} << 10;
constexpr std::size_t kArrayAlignment = 256;

/// An array of a detour and its dense copy in host memory.
struct Crossing {
  std::uint32_t* device;
  std::uint32_t* host;
  std::int64_t rows;
  std::int64_t words;
  std::int64_t stride;
};
struct Crossings {
  Crossing arrays[HostDetour::kMostArrays];
  int count;
};

/// Calls body(word on the device, word on the host) for all words of an array, shared among the grid's threads.
template <class Body>
__device__ void for_each_word(const Crossing& array, const Body& body) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = first; i < array.rows * array.words; i += step) {
    body(array.device[i / array.words * array.stride + i % array.words], array.host[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    send_kernel(const __grid_constant__ Crossings crossings, std::byte* flags, unsigned number) {
  wait_for_predecessor();
  for (int i = 0; i < crossings.count; ++i) {
    for_each_word(crossings.arrays[i], [](const std::uint32_t& from, std::uint32_t& to) { to = from; });
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *reinterpret_cast<volatile unsigned*>(flags + blockIdx.x * kFlagBytes) = number;
}

__global__ void __launch_bounds__(kThreads) receive_kernel(const __grid_constant__ Crossing array) {
  release_successor();
  wait_for_predecessor();
  for_each_word(array, [](std::uint32_t& to, const std::uint32_t& from) { to = __ldcv(&from); });
}

std::size_t aligned(std::size_t bytes) { return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment; }

std::size_t size_of(const DetourArray& array) {
  return static_cast<std::size_t>(array.rows * array.words) * kWordBytes;
}

unsigned blocks_for(std::size_t bytes) {
  const std::size_t blocks = (bytes / kWordBytes + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::min<std::size_t>(std::max<std::size_t>(blocks, 1), kMostBlocks));
}

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

using HostPointers = std::array<std::byte*, HostDetour::kMostArrays>;

HostPointers place_arrays(const HostDetour& detour, std::byte* at) {
  HostPointers host = {};
  for (std::size_t i = 0; i < detour.arrays.size(); ++i) {
    host[i] = at;
    at += aligned(size_of(detour.arrays[i]));
  }
  return host;
}

Status copy_rows(const DetourArray& array, std::byte* host, cudaMemcpyKind kind, cudaStream_t stream) {
  if (size_of(array) == 0) return {};
  const auto row = static_cast<std::size_t>(array.words) * kWordBytes;
  const auto pitch = static_cast<std::size_t>(array.stride) * kWordBytes;
  const auto rows = static_cast<std::size_t>(array.rows);
  if (pitch == row || rows == 1) {
    void* const to = kind == cudaMemcpyDeviceToHost ? host : array.device;
    const void* const from = kind == cudaMemcpyDeviceToHost ? array.device : host;
    return cuda_status(cudaMemcpyAsync(to, from, row * rows, kind, stream), "copying between host and GPU");
  }
  const cudaError_t error = kind == cudaMemcpyDeviceToHost
                                ? cudaMemcpy2DAsync(host, row, array.device, pitch, row, rows, kind, stream)
                                : cudaMemcpy2DAsync(array.device, pitch, host, row, row, rows, kind, stream);
  return cuda_status(error, "copying between host and GPU");
}

}  // namespace

Status HostDetours::run(const HostDetour& detour) {
  std::size_t bytes = 0;
  for (const DetourArray& array : detour.arrays) bytes += aligned(size_of(array));
  if (bytes <= kMostShared) {
    VN_TRY(prepare_shared());
    if (shared_.size() > 0) return run_shared(detour, bytes);
  }
  return run_copied(detour, bytes);
}

Status HostDetours::prepare_shared() {
  if (tried_) return {};
  tried_ = true;
  auto shared = allocate_pinned(kFlagsBytes + kMostShared, "hand-over to the host");
  if (!shared && shared.error().code != ErrorCode::kOutOfMemory) return tl::unexpected(shared.error());
  if (!shared) return {};
  auto* const flags = static_cast<std::byte*>(shared->data());
  std::fill_n(flags, kFlagsBytes, std::byte{0});
  shared_ = *std::move(shared);
  return {};
}

Status HostDetours::run_shared(const HostDetour& detour, std::size_t bytes) {
  auto* const flags = static_cast<std::byte*>(shared_.data());
  const HostPointers host = place_arrays(detour, flags + kFlagsBytes);
  Crossings crossings = {};
  for (const DetourArray& array : detour.arrays) {
    crossings.arrays[crossings.count] = {static_cast<std::uint32_t*>(array.device),
                                         reinterpret_cast<std::uint32_t*>(host[crossings.count]), array.rows,
                                         array.words, array.stride};
    ++crossings.count;
  }
  const unsigned blocks = blocks_for(bytes);
  ++number_;
  VN_TRY(launch(context_, {dim3(blocks), dim3(kThreads)}, send_kernel, crossings, flags, number_));
  VN_TRY(wait_for(blocks, number_));
  VN_TRY(detour.work(std::span(host).first(detour.arrays.size())));
  if (!detour.returns_last) return {};
  // The kernel in front has ended, so nobody reads or writes the host's arrays until the next detour waits for this
  // kernel in turn.
  const Crossing& last = crossings.arrays[crossings.count - 1];
  return launch(context_, {dim3(blocks_for(size_of(detour.arrays.back()))), dim3(kThreads)}, receive_kernel, last);
}

/// Until the blocks of a send_kernel have written `number`, or the stream has failed.
Status HostDetours::wait_for(unsigned blocks, unsigned number) {
  constexpr int kSpins = 4096;
  const auto* const flags = static_cast<const std::byte*>(shared_.data());
  for (unsigned b = 0; b < blocks; ++b) {
    const auto* const flag = reinterpret_cast<const volatile unsigned*>(flags + b * kFlagBytes);
    for (int spins = 0; *flag != number;) {
      if (++spins % kSpins != 0) {
        pause_cpu();
        continue;
      }
      const cudaError_t state = cudaStreamQuery(context_.stream);
      if (state == cudaErrorNotReady) {
        (void)cudaGetLastError();
        continue;
      }
      VN_TRY(cuda_status(state, "waiting for the GPU"));
      if (*flag != number) return fail(ErrorCode::kDevice, "cuda: a hand-over to the host got lost");
    }
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return {};
}

Status HostDetours::run_copied(const HostDetour& detour, std::size_t bytes) {
  if (copied_.size() < bytes) {
    VN_CUDA(cudaStreamSynchronize(context_.stream));  // a copy may still read the old memory
    VN_ASSIGN(copied_, memory_.allocate(bytes));
  }
  const HostPointers host = place_arrays(detour, static_cast<std::byte*>(copied_.data()));
  for (std::size_t i = 0; i < detour.arrays.size(); ++i) {
    VN_TRY(copy_rows(detour.arrays[i], host[i], cudaMemcpyDeviceToHost, context_.stream));
  }
  VN_CUDA(cudaStreamSynchronize(context_.stream));
  VN_TRY(detour.work(std::span(host).first(detour.arrays.size())));
  if (!detour.returns_last) return {};
  return copy_rows(detour.arrays.back(), host[detour.arrays.size() - 1], cudaMemcpyHostToDevice, context_.stream);
}

}  // namespace vernier::cuda
