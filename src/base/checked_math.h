// Size arithmetic on numbers that came from a file: every result is either right or absent, never wrapped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace vernier {

/// An unsigned 64-bit number that remembers whether any step that led to it overflowed.
class CheckedU64 {
 public:
  constexpr CheckedU64(std::uint64_t value) : value_(value) {}

  constexpr CheckedU64& operator*=(CheckedU64 other) {
    overflow_ = __builtin_mul_overflow(value_, other.value_, &value_) || overflow_ || other.overflow_;
    return *this;
  }
  constexpr CheckedU64& operator+=(CheckedU64 other) {
    overflow_ = __builtin_add_overflow(value_, other.value_, &value_) || overflow_ || other.overflow_;
    return *this;
  }
  friend constexpr CheckedU64 operator*(CheckedU64 a, CheckedU64 b) { return a *= b; }
  friend constexpr CheckedU64 operator+(CheckedU64 a, CheckedU64 b) { return a += b; }

  /// Rounds up to a multiple of `alignment` (not zero).
  [[nodiscard]] constexpr CheckedU64 align_up(std::uint64_t alignment) const {
    CheckedU64 result = *this;
    const std::uint64_t rest = value_ % alignment;
    if (rest != 0) result += alignment - rest;
    return result;
  }
  /// The value, or nothing when an overflow happened on the way.
  [[nodiscard]] constexpr std::optional<std::uint64_t> value() const {
    return overflow_ ? std::nullopt : std::optional(value_);
  }

 private:
  std::uint64_t value_;
  bool overflow_ = false;
};

/// The product of all dimensions (1 for none), or nothing on overflow.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_product(std::span<const std::uint64_t> dims) {
  CheckedU64 product = 1;
  for (const std::uint64_t dim : dims) product *= dim;
  return product.value();
}

[[nodiscard]] constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace vernier
