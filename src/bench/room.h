// Whether memory holds what a benchmark is about to make: asked before any of it is taken.
#pragma once

#include <string_view>

#include "backend/backend.h"

namespace vernier::bench {

/// Words of a refusal.
struct RoomWords {
  std::string_view what;  ///< "... take"
  std::string_view hint;  ///< how to need less
};

/// kOutOfMemory when `bytes` don't fit into a backend's memory.
[[nodiscard]] Status check_room(const Backend& backend, const RoomWords& words, double bytes);
/// The same of the host, where weights are made, whatever holds them in the end.
[[nodiscard]] Status check_host_room(const RoomWords& words, double bytes);

}  // namespace vernier::bench
