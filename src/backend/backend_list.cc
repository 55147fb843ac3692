// The backends of this build, in the order in which "auto" prefers them. To add one: its entry here.
#include <array>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_entry.h"
#include "backend/reference/reference_backend.h"

namespace vernier {

std::span<const BackendEntry> backend_list() {
  static const std::array kEntries{cuda_backend_entry(), cpu_backend_entry(), reference_backend_entry()};
  return kEntries;
}

Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options) {
  std::string known = "auto";
  for (const BackendEntry& entry : backend_list()) {
    const std::string reason = entry.unavailable();
    if (name == "auto" && reason.empty()) return entry.create(options);
    if (name == entry.name) {
      if (reason.empty()) return entry.create(options);
      return fail(ErrorCode::kDevice, "device '{}' is unavailable: {}", name, reason);
    }
    known += fmt::format(", {}", entry.name);
  }
  return fail_with_hint(ErrorCode::kInvalidArgument, fmt::format("known devices: {}", known), "unknown device '{}'",
                        escape(name));
}

}  // namespace vernier
