// The shapes of published models that synthetic weights can be made for: models/shapes.json, which is in the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace vernier::bench {

struct Shape {
  std::string name;     ///< "llama-3.1-8b"
  std::string about;    ///< a line for the listing
  std::string linear;   ///< format of projections in the published checkpoint, as `inspect` calls formats
  std::string experts;  ///< of experts
  Json config;          ///< the published config.json, without what doesn't matter here
};

/// All shapes, in the order of the listing.
[[nodiscard]] Result<std::vector<Shape>> shape_list();
/// One of them. kInvalidArgument naming the known ones.
[[nodiscard]] Result<Shape> find_shape(std::string_view name);

/// The config of the same model with only its first `layers` layers. kInvalidArgument when it has fewer.
[[nodiscard]] Result<Json> with_layers(const Json& config, std::int64_t layers);

}  // namespace vernier::bench
