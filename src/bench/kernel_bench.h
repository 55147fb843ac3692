// Speed of single operations of a backend, on random operands of true shapes that no cache holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "bench/spread.h"

namespace vernier::bench {

struct KernelBenchOptions {
  std::string device = "auto";
  std::string cpu_isa;
  std::int32_t threads = 0;
  std::string precision = "bf16";
  std::int32_t repeat = 5;
  BenchClock clock = BenchClock::kWall;
  std::string formats;  ///< "bf16,q8_0", "all", "NAME:gguf" for the interleaved layout; empty: those most used
  std::string ops;      ///< of linear, attention, delta-net, experts; empty: all
  std::string rows;     ///< input rows of linears; empty: 1 to 512
  std::string shapes;   ///< linears as OUTxIN; empty: two of an 8B model
  std::string chain;    ///< of apart, overlap, norm: linears in steps of many; empty: by single calls
  std::int32_t working_set_mib = 0;  ///< operands to rotate through; 0: four times the largest cache
};

struct KernelResult {
  std::string op;
  std::string format;
  std::string shape;
  std::int64_t tokens = 0;
  Spread seconds;      ///< of one call
  double bytes = 0.0;  ///< that it must read, and write where that matters
  double flops = 0.0;
  double gb_s = 0.0;
  double gflop_s = 0.0;
  Ceilings limit;  ///< medians over the rounds; zeros: unknown
  double share_of_limit = 0.0;
};

/// Runs what the options ask for and passes each figure on as soon as it's there. kInvalidArgument for names and
/// numbers that make no sense, kOutOfMemory when the operands don't fit.
[[nodiscard]] Status run_kernel_bench(const KernelBenchOptions& options,
                                      const std::function<Status(const KernelResult&)>& report);

}  // namespace vernier::bench
