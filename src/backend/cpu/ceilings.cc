#include "backend/cpu/ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_isa.h"
#include "base/cpu_topology.h"

namespace vernier {
namespace {

constexpr std::size_t kHugePage = 2U << 20U;

/// The best instruction set that this machine runs without being asked for.
const vernier_isa::Kernels& best_kernels() {
  for (const CpuIsa& isa : cpu_isa_list()) {
    if (isa.preferred != nullptr && isa.available()) return isa.kernels();
  }
  return vernier_isa::portable_kernels();
}

bool is_on_request(const vernier_isa::Kernels& kernels) {
  const std::span<const CpuIsa> list = cpu_isa_list();
  return std::any_of(list.begin(), list.end(), [&](const CpuIsa& isa) {
    return isa.preferred == nullptr && isa.available() && &isa.kernels() == &kernels;
  });
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

Result<Ceilings> CpuBackend::measure_ceilings(BenchClock clock) {
  if (read_memory_.size() == 0) {
    // Four times the last cache, so that little of it is left from the pass before.
    const std::uint64_t wanted = std::clamp<std::uint64_t>(4 * largest_cache_bytes(), 256ULL << 20U, 1ULL << 30U);
    const std::uint64_t room = std::max<std::uint64_t>(HostBackend::memory().available_bytes / 8, 16ULL << 20U);
    const auto size = static_cast<std::size_t>(std::min(wanted, room) / kHugePage * kHugePage);
    void* memory = std::aligned_alloc(kHugePage, size);
    if (memory == nullptr) return fail(ErrorCode::kOutOfMemory, "cpu: can't allocate {} bytes of memory", size);
    read_memory_ = Buffer(memory, size, [](void* data) { std::free(data); });
    static_cast<void>(madvise(memory, size, MADV_HUGEPAGE));  // refused on some systems, which is no error
    std::memset(memory, 1, size);
  }
  const std::span<const std::byte> memory(static_cast<const std::byte*>(read_memory_.data()), read_memory_.size());
  const double products =
      is_on_request(kernels_) ? multiply_add_gflop_s(pool_, kernels_, clock) : dot_gflop_s(pool_, clock);
  return Ceilings{read_gb_s(pool_, memory, clock), products};
}

}  // namespace vernier
