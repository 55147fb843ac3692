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
/// More than this a copy moves as fast.
constexpr std::size_t kMostShared = std::size_t{1} << 20;
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

/// A number that one side writes and the other waits for, in a line of its own.
struct alignas(64) Flag {
  volatile unsigned number = 0;
};

/// The number of a hand-over: `offset`, and in a graph the host says from where to count.
struct Turn {
  const volatile unsigned* base;
  unsigned offset;
  volatile unsigned* current;  ///< in device memory: for the kernel that waits, as the base may have moved on by then
  [[nodiscard]] __device__ unsigned number() const { return base != nullptr ? *base + offset : offset; }
};

__global__ void __launch_bounds__(kThreads)
    send_kernel(const __grid_constant__ Crossings crossings, Flag* flags, Turn turn) {
  wait_for_predecessor();
  for (int i = 0; i < crossings.count; ++i) {
    for_each_word(crossings.arrays[i], [](const std::uint32_t& from, std::uint32_t& to) { to = from; });
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  const unsigned number = turn.number();
  if (blockIdx.x == 0) *turn.current = number;
  flags[blockIdx.x].number = number;
}

/// `done`: where the host, which works meanwhile, writes the turn's number; null: it has finished.
__global__ void __launch_bounds__(kThreads)
    receive_kernel(const __grid_constant__ Crossing array, const Flag* done, Turn turn) {
  release_successor();
  wait_for_predecessor();
  if (done != nullptr && threadIdx.x == 0) {
    const unsigned number = *turn.current;
    while (done->number != number) __nanosleep(100);
    __threadfence_system();
  }
  __syncthreads();
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

struct HostDetours::Shared {
  Flag sent[kMostBlocks];
  Flag done;
  Flag base;  ///< of the graph that runs
  [[nodiscard]] std::byte* arrays() { return reinterpret_cast<std::byte*>(this + 1); }
};

Status HostDetours::run(const HostDetour& detour) {
  std::size_t bytes = 0;
  for (const DetourArray& array : detour.arrays) bytes += aligned(size_of(array));
  if (bytes <= kMostShared) {
    VN_TRY(prepare_shared());
    if (shared_.size() > 0) return run_shared(detour, bytes);
  }
  if (records_) return fail(ErrorCode::kInternal, "cuda: a detour of {} bytes can't be part of a graph", bytes);
  return run_copied(detour, bytes);
}

Status HostDetours::prepare_shared() {
  if (tried_) return {};
  tried_ = true;
  auto shared = allocate_pinned(sizeof(Shared) + kMostShared, "hand-over to the host");
  if (!shared && shared.error().code != ErrorCode::kOutOfMemory) return tl::unexpected(shared.error());
  if (!shared) return {};
  VN_ASSIGN(current_, allocate_device(sizeof(unsigned), "hand-over to the host"));
  new (shared->data()) Shared();
  shared_ = *std::move(shared);
  return {};
}

Status HostDetours::run_shared(const HostDetour& detour, std::size_t bytes) {
  if (records_ && !detour.returns_last) return fail(ErrorCode::kInternal, "cuda: a detour that can't be repeated");
  const HostPointers host = place_arrays(detour, shared().arrays());
  Crossings crossings = {};
  for (const DetourArray& array : detour.arrays) {
    crossings.arrays[crossings.count] = {static_cast<std::uint32_t*>(array.device),
                                         reinterpret_cast<std::uint32_t*>(host[crossings.count]), array.rows,
                                         array.words, array.stride};
    ++crossings.count;
  }
  // The arrays are the host's until the next send_kernel, which runs behind this detour's receive_kernel.
  const Crossing& last = crossings.arrays[crossings.count - 1];
  const LaunchShape there = {dim3(blocks_for(bytes)), dim3(kThreads)};
  const LaunchShape back = {dim3(blocks_for(size_of(detour.arrays.back()))), dim3(kThreads)};
  auto* const current = static_cast<unsigned*>(current_.data());
  if (records_) {
    recording_.push_back({there.grid.x, {host.begin(), host.begin() + crossings.count}, detour.work});
    const Turn turn = {&shared().base.number, static_cast<unsigned>(recording_.size()), current};
    VN_TRY(launch(context_, there, send_kernel, crossings, shared().sent, turn));
    return launch(context_, back, receive_kernel, last, &shared().done, turn);
  }
  const Turn turn = {nullptr, ++number_, current};
  VN_TRY(launch(context_, there, send_kernel, crossings, shared().sent, turn));
  VN_TRY(wait_for(there.grid.x, number_));
  VN_TRY(detour.work(std::span(host).first(detour.arrays.size())));
  if (!detour.returns_last) return {};
  return launch(context_, back, receive_kernel, last, nullptr, turn);
}

void HostDetours::begin_recording() {
  records_ = true;
  recording_.clear();
}

HostDetours::Recording HostDetours::end_recording() {
  records_ = false;
  return std::exchange(recording_, {});
}

Status HostDetours::serve(const Recording& recording, const std::function<Status()>& launch) {
  if (recording.empty()) return launch();
  // Nobody reads it any more for an earlier step, whose last detour's send_kernel has been waited for.
  shared().base.number = number_;
  const unsigned first = number_ + 1;
  number_ += static_cast<unsigned>(recording.size());
  std::atomic_thread_fence(std::memory_order_seq_cst);
  VN_TRY(launch());
  Status status;
  for (std::size_t i = 0; i < recording.size(); ++i) {
    const Recorded& detour = recording[i];
    const unsigned number = first + static_cast<unsigned>(i);
    // After a failure the rest of the step runs on what there is, so that the GPU doesn't wait for ever.
    VN_TRY(wait_for(detour.blocks, number));
    if (status) status = detour.work(detour.host);
    std::atomic_thread_fence(std::memory_order_release);
    shared().done.number = number;
  }
  return status;
}

/// Until the blocks of a send_kernel have written `number`, or the stream has failed.
Status HostDetours::wait_for(unsigned blocks, unsigned number) {
  constexpr int kSpins = 4096;
  for (unsigned b = 0; b < blocks; ++b) {
    const volatile unsigned& flag = shared().sent[b].number;
    for (int spins = 0; flag != number;) {
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
      if (flag != number) return fail(ErrorCode::kDevice, "cuda: a hand-over to the host got lost");
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
