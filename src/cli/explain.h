// The ten steps from bytes to tokens, told for one real file (docs/from-bytes-to-tokens.md tells them in general).
#pragma once

#include <string>

#include "vernier/model.h"

namespace vernier::cli {

/// Ten numbered paragraphs with this checkpoint's own names and numbers.
[[nodiscard]] std::string explain(const Inspection& found);

}  // namespace vernier::cli
