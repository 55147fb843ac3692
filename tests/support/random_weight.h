// Random valid weights of every format and layout, with all the freedom that a file has: odd addresses, padded rows,
// views that begin inside a grid block, partial edge blocks. What lies between rows is poisoned.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tensor/weight.h"

namespace vernier::test {

/// A small, fast, fixed generator: the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  std::uint64_t next();
  /// In [0, n).
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// In [-1, 1), 24 bits.
  float uniform();
  /// `count` of those, times `scale`.
  std::vector<float> floats(std::int64_t count, float scale = 1.0F);

 private:
  std::uint64_t state_;
};

/// One way in which a format comes.
struct FormatCase {
  FormatId format{};
  WeightLayout layout{};
  std::string name;  ///< fit for a test's name: "q4_0_interleaved"
  std::int64_t cols_multiple = 1;
  friend void PrintTo(const FormatCase& which, std::ostream* out) { *out << which.name; }
};
[[nodiscard]] std::vector<FormatCase> all_format_cases();

enum class OuterKind { kNone, kScalar, kPerRow, kDivides };

struct WeightSpec {
  FormatId format{};
  WeightLayout layout{};
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t row_padding = 0;        ///< bytes
  std::int64_t first_row = 0;          ///< of the view within its scales
  std::int32_t grid_block_rows = 128;  ///< formats with a grid
  std::int32_t grid_block_cols = 128;
  DType grid_dtype = DType::kF32;
  OuterKind outer = OuterKind::kNone;
  std::uint64_t seed = 1;
};

/// Every code may occur but those of NaN and infinity; block scales are legal and of moderate size. The weight owns its
/// bytes, which end where their memory ends.
[[nodiscard]] Weight random_weight(const WeightSpec& spec);

/// The bytes of a weight's codes, to be changed.
[[nodiscard]] std::byte* mutable_codes(const Weight& weight);
[[nodiscard]] std::byte* mutable_scales(const Weight& weight);

}  // namespace vernier::test
