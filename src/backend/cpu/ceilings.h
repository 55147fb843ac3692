// What this machine's cores can do at most, measured: the denominators of every share that a benchmark reports. Not a
// benchmark of Vernier's own operations.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "base/thread_pool.h"

namespace vernier {

/// Seconds on a clock since some moment; with kCpu, of a process that keeps `threads` threads busy.
[[nodiscard]] double bench_seconds(BenchClock clock, int threads);

/// One pass over `memory` in plain 64-byte reads, shared among the pool's threads: 1e9 bytes a second. Of memory much
/// larger than the last cache that is what a weight can be streamed at. The memory must have been written before.
[[nodiscard]] double read_gb_s(ThreadPool& pool, std::span<const std::byte> memory,
                               BenchClock clock = BenchClock::kWall);

/// Rate of VDPBF16PS from registers on all threads of the pool, or where the CPU lacks it of its best multiply-adds, in
/// 1e9 floating-point operations a second (a multiply and an add are two). Takes some 20 ms. Tiles don't count: a
/// backend that uses them measures them.
[[nodiscard]] double dot_gflop_s(ThreadPool& pool, BenchClock clock = BenchClock::kWall);

/// The same of one instruction set's multiply-adds (cpu_isa.h): TDPBF16PS for "amx", VDPBF16PS for "avx512bf16", fp32
/// ones for the others.
[[nodiscard]] double multiply_add_gflop_s(ThreadPool& pool, const vernier_isa::Kernels& kernels,
                                          BenchClock clock = BenchClock::kWall);

}  // namespace vernier
