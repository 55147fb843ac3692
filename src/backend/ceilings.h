// What a device can do at best: what `vernier bench` holds figures against.
#pragma once

#include <cstdint>

namespace vernier {

/// Which time a rate is reckoned from.
enum class BenchClock : std::uint8_t {
  kWall,
  kCpu,  ///< CPU time of the process, shared out among the threads: right where neighbours take part of the wall time
};

/// What a device can do at best, as measured just now: what `vernier bench` holds figures against. 0: unknown.
struct Ceilings {
  double read_gb_s = 0.0;    ///< 10^9 bytes a second, read from memory that no cache holds
  double dot_gflop_s = 0.0;  ///< 10^9 operations a second: bf16 products added in fp32, a product and its sum being two
};

}  // namespace vernier
