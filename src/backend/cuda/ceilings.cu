#include <algorithm>

#include "backend/cuda/ceilings.h"
#include "backend/cuda/fragment/mma.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kLoadsAtOnce = 8;
constexpr int kRounds = 2000;        // of products
constexpr int kIndependentSums = 8;  // enough to hide the latency of one

/// Every load counts and none can be dropped: their sum is compared with a number that it isn't.
__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* memory, std::int64_t count, std::uint32_t* sink) {
  std::uint32_t folded = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; at + (kLoadsAtOnce - 1) * step < count; at += kLoadsAtOnce * step) {
    uint4 piece[kLoadsAtOnce];
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) piece[i] = __ldcs(memory + at + i * step);
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) folded ^= piece[i].x ^ piece[i].y ^ piece[i].z ^ piece[i].w;
  }
  if (folded == 0x9E3779B9) *sink = folded;
}

__global__ void __launch_bounds__(kThreads) product_kernel(float* sink) {
  const auto seed = static_cast<std::uint32_t>(threadIdx.x);
  const FragmentA a = {{seed, seed, seed, seed}};
  const FragmentB b = {{seed, seed}};
  float sums[kIndependentSums][4] = {};
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kIndependentSums; ++i) multiply_add(sums[i], a, b);
  }
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < kIndependentSums; ++i) total += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (total == 1.0F) *sink = total;
}

/// Two events, destroyed in the end.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {}
  ~Stopwatch() {
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Seconds that what `work` puts on the stream takes.
  template <class Work>
  [[nodiscard]] Result<double> time(Work work) {
    for (cudaEvent_t& event : events_) {
      if (event == nullptr) VN_CUDA(cudaEventCreate(&event));
    }
    VN_CUDA(cudaEventRecord(events_[0], stream_));
    work();
    VN_CUDA(cudaGetLastError());
    VN_CUDA(cudaEventRecord(events_[1], stream_));
    VN_CUDA(cudaEventSynchronize(events_[1]));
    float milliseconds = 0.0F;
    VN_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t events_[2] = {};
};

}  // namespace

Result<Ceilings> measure_ceilings(CudaContext& context, const Buffer& memory) {
  constexpr int kRepeats = 3;
  constexpr int kReadBlocksPerSm = 4;
  constexpr double kOperations = 2.0 * 16 * 8 * 16;  // of one multiply_add() of a warp
  const auto read_blocks = static_cast<unsigned>(context.num_sms * kReadBlocksPerSm);
  const auto product_blocks = static_cast<unsigned>(context.num_sms);
  const std::int64_t round = std::int64_t{read_blocks} * kThreads * kLoadsAtOnce;
  const std::int64_t pieces = static_cast<std::int64_t>(memory.size() / sizeof(uint4)) / round * round;
  Stopwatch watch(context.stream);
  Ceilings best;
  for (int i = 0; i < kRepeats; ++i) {
    VN_ASSIGN(const double read_seconds, watch.time([&] {
      read_kernel<<<read_blocks, kThreads, 0, context.stream>>>(static_cast<const uint4*>(memory.data()), pieces,
                                                                static_cast<std::uint32_t*>(memory.data()));
    }));
    VN_ASSIGN(const double product_seconds, watch.time([&] {
      product_kernel<<<product_blocks, kThreads, 0, context.stream>>>(static_cast<float*>(memory.data()));
    }));
    const double bytes = static_cast<double>(pieces) * sizeof(uint4);
    const double operations = kOperations * kIndependentSums * kRounds * product_blocks * (kThreads / 32);
    best.read_gb_s = std::max(best.read_gb_s, bytes * 1e-9 / read_seconds);
    best.dot_gflop_s = std::max(best.dot_gflop_s, operations * 1e-9 / product_seconds);
  }
  return best;
}

}  // namespace vernier::cuda
