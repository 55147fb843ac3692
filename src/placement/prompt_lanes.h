// Whether the experts of a step with many tokens are computed by the host, or stream through a device's slots and are
// computed there: by what both lanes took for steps of such a size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vernier {

class PromptLanes {
 public:
  /// From here on each expert meets many tokens, and the host isn't tried.
  static constexpr std::int64_t kManyRows = 256;

  /// Whether it depends on what lanes took.
  [[nodiscard]] static bool compares(std::int64_t rows) { return rows >= kFewestRows && rows < kManyRows; }
  /// True where the device shall compute a layer's experts for `rows` tokens.
  [[nodiscard]] bool streams(std::int64_t rows);
  /// What a layer's experts took there.
  void record(std::int64_t rows, bool streamed, double seconds);

 private:
  /// Fewer tokens are a decode step's: most of their experts are read for one of them.
  static constexpr std::int64_t kFewestRows = 32;
  static constexpr std::size_t kSizes = 4;  ///< 32 to 63 tokens, 64 to 127, 128 to 255, more
  /// The slower lane gets a turn now and then, as machines and texts change.
  static constexpr std::int64_t kTurns = 256;

  struct Lane {
    double seconds_a_row = 0.0;  ///< a mean in which older samples fade; 0: unknown
    void add(double sample) { seconds_a_row += (sample - seconds_a_row) * (seconds_a_row > 0.0 ? 0.25 : 1.0); }
  };
  struct Size {
    Lane host;
    Lane device;
    std::int64_t turns = 0;
  };
  [[nodiscard]] static std::size_t size_of(std::int64_t rows);

  std::array<Size, kSizes> sizes_;
};

}  // namespace vernier
