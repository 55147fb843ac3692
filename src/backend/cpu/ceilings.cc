#include "backend/cpu/ceilings.h"

#include <atomic>
#include <chrono>
#include <ctime>

#include "backend/cpu/cpu_isa.h"

namespace vernier {
namespace {

/// The best instruction set that this machine runs.
const vernier_isa::Kernels& best_kernels() {
  for (const CpuIsa& isa : cpu_isa_list()) {
    if (isa.available()) return isa.kernels();
  }
  return vernier_isa::portable_kernels();
}

}  // namespace

double bench_seconds(BenchClock clock, int threads) {
  if (clock == BenchClock::kCpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / threads;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double read_gb_s(ThreadPool& pool, std::span<const std::byte> memory, BenchClock clock) {
  constexpr std::int64_t kPiece = 4096;
  const vernier_isa::Kernels& kernels = best_kernels();
  const auto pieces = static_cast<std::int64_t>(memory.size()) / kPiece;
  std::atomic<std::uint64_t> folded = 0;  // keeps the reads from being dropped
  const auto read = [&](std::int64_t begin, std::int64_t end, int) {
    folded ^= kernels.fold_bytes(memory.data() + begin * kPiece, (end - begin) * kPiece);
  };
  const double start = bench_seconds(clock, pool.size());
  pool.parallel_for(pieces, read);
  return static_cast<double>(pieces * kPiece) * 1e-9 / (bench_seconds(clock, pool.size()) - start);
}

double multiply_add_gflop_s(ThreadPool& pool, const vernier_isa::Kernels& kernels, BenchClock clock) {
  constexpr std::int64_t kRounds = 1 << 20;
  std::atomic<double> operations = 0.0;
  const auto spin = [&](std::int64_t, std::int64_t, int) {
    float sink[vernier_isa::kSinkFloats];
    for (int i = 0; i < vernier_isa::kSinkFloats; ++i) sink[i] = 0.5F + 0.001F * static_cast<float>(i);
    operations.fetch_add(kernels.spin_multiply_adds(kRounds, sink));
  };
  const double start = bench_seconds(clock, pool.size());
  pool.parallel_for(pool.size(), spin);
  return operations.load() * 1e-9 / (bench_seconds(clock, pool.size()) - start);
}

double dot_gflop_s(ThreadPool& pool, BenchClock clock) { return multiply_add_gflop_s(pool, best_kernels(), clock); }

}  // namespace vernier
