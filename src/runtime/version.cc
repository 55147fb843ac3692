#include "vernier/version.h"

namespace vernier {

std::string_view version() { return VERNIER_VERSION; }

}  // namespace vernier
