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
  std::string ops;      ///< of linear, attention, delta-net, experts, mixture, router, norm; empty: all
  std::string rows;     ///< input rows of linears, tokens of routers and experts; empty: 1 to 512
  std::string shapes;   ///< linears as OUTxIN; empty: two of an 8B model
  std::string cases;    ///< the only shapes of attention, delta nets and experts, as results name them; empty: all
  std::string chain;    ///< of apart, overlap, norm: how linears of a step follow each other; empty: as `overlap`
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
  std::int64_t kernels = 0;  ///< that a call was, where the device launched steps as a whole; 0: unknown
};

/// On a GPU operations are measured as a decode step has them: many in a recorded step, each with other operands, and
/// they may overlap. On a host they are called one by one.
/// Runs what the options ask for and passes each figure on as soon as it's there. kInvalidArgument for names and
/// numbers that make no sense, kOutOfMemory when the operands don't fit.
[[nodiscard]] Status run_kernel_bench(const KernelBenchOptions& options,
                                      const std::function<Status(const KernelResult&)>& report);

}  // namespace vernier::bench
