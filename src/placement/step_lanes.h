// Whether a device computes a step of decoding alone, or the host takes a share of its experts: by what such steps took
// in all. Both are tried now and then, and the faster one is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vernier {

class StepLanes {
 public:
  static constexpr std::int64_t kMostRows = 8;  ///< with more tokens the host takes no share

  /// Begins a step of so many tokens; true where the host shall take a share.
  [[nodiscard]] bool shares(std::int64_t rows);
  /// What the step took that began last.
  void record(double seconds);

 private:
  /// A round: kTrial steps of which two are the device's and two shared, in turn, and the rest in the faster way. Two,
  /// as the first after a change may have the host's books to read; in turn, as misses become fewer. So few that a
  /// hundred steps in a row are hardly slower for it.
  static constexpr std::int64_t kTrial = 8;
  static constexpr std::int64_t kRound = 256;
  /// The first steps, by the device, tell nothing: slots are empty, and graphs not made yet.
  static constexpr std::int64_t kBegins = 8;

  struct Size {
    std::int64_t begins = kBegins;
    std::int64_t steps = 0;
    std::array<double, 2> best = {};  ///< seconds of this round's fastest step: alone, shared; 0: unknown
    bool sharing_wins = false;
  };
  std::array<Size, kMostRows> sizes_;
  Size* tried_ = nullptr;  ///< whose trial the current step is
  bool shared_ = false;
};

}  // namespace vernier
