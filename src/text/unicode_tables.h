// The shape of the generated tables of unicode_tables.cc. Use text/unicode.h instead; nothing else includes this.
#pragma once

#include <cstdint>
#include <span>

namespace vernier::text_internal {

/// From `first` up to the next row's `first`: the index of the general category (see GeneralCategory).
struct CategoryRange {
  std::uint32_t first;
  std::uint8_t category;
};
/// From `first` up to the next row's `first`: the canonical combining class.
struct CombiningRange {
  std::uint32_t first;
  std::uint8_t combining_class;
};
/// The full decomposition of a character: a part of the pool.
struct Decomposition {
  std::uint32_t code_point;
  std::uint16_t offset;
  std::uint16_t length;
};
/// A primary composite; rows are ordered by (first, second).
struct Composition {
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t composed;
};
/// Lower case; `second` is 0 except for the one character whose lower case is two.
struct LowerCase {
  std::uint32_t code_point;
  std::uint32_t lower;
  std::uint32_t second;
};

/// Spans instead of arrays so that this header needs no sizes. All are ordered by code point.
struct UnicodeTables {
  std::span<const CategoryRange> categories;
  std::span<const CombiningRange> combining;
  std::span<const Decomposition> canonical;   // Hangul syllables are left out
  std::span<const Decomposition> compatible;  // only where it differs from the canonical one
  std::span<const char32_t> decomposed;       // the pool
  std::span<const Composition> compositions;
  std::span<const LowerCase> lower_case;
};

extern const UnicodeTables kUnicodeTables;

}  // namespace vernier::text_internal
