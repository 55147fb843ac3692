// How many bytes of weights a step reads and how many multiplications they take part in: what speeds are held against.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/weight.h"

namespace vernier {

/// A model's weights by how often a step touches them. Bytes include scales; values are matrix elements.
struct WeightTraffic {
  struct Share {
    std::uint64_t bytes = 0;
    std::uint64_t values = 0;
  };
  Share trunk;    ///< read once a step, whatever its size
  Share head;     ///< the same, but multiplied only for rows whose logits are wanted
  Share experts;  ///< all experts of all layers
  bool head_is_embedding = false;
  std::uint64_t embedding_row_bytes = 0;  ///< of each embedding table, together: read once a token
};

/// Of matrices by role, as WeightSet holds them.
[[nodiscard]] WeightTraffic weight_traffic(const std::unordered_map<std::string, std::vector<Weight>>& matrices);

}  // namespace vernier
