// Sines and cosines of a step's positions, which all layers of one kind share: computed by the first of them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/scratch.h"

namespace vernier {

/// The tables of the last few kinds of layers.
class RotationTables {
 public:
  /// What the numbers depend on, by value: a table never outlives its meaning.
  struct Key {
    std::vector<double> inverse_frequencies;
    float magnitude = 0.0F;
    std::vector<std::int64_t> positions;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    Scratch<float> tables;  ///< [positions, 2 * frequencies]
    bool is_filled = false;
  };
  /// The entry of a key; a new one replaces the oldest and isn't filled.
  [[nodiscard]] Entry& find(Key key);

 private:
  std::array<Entry, 4> entries_;
  std::size_t next_ = 0;
};

}  // namespace vernier
