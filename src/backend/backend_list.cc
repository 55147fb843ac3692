// The backends of this build, in the order in which "auto" prefers them. To add one: its entry here.
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_entry.h"
#include "backend/reference/reference_backend.h"

namespace vernier {
namespace {

constexpr std::int32_t kMaxIndex = 1023;

/// "cuda:1" in two: {"cuda", "1"}. No index where there is no colon.
struct DeviceName {
  std::string_view kind;
  std::optional<std::string_view> index;
};

DeviceName split_device(std::string_view name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return {name, std::nullopt};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

/// Sets options.device_index where the name has an index.
Status take_index(const BackendEntry& entry, const DeviceName& name, BackendOptions& options) {
  if (!name.index) return {};
  if (!entry.has_index) {
    return fail(ErrorCode::kInvalidArgument, "device '{}' takes no index, found ':{}'", entry.name,
                escape(*name.index));
  }
  const char* const end = name.index->data() + name.index->size();
  const auto [stopped, error] = std::from_chars(name.index->data(), end, options.device_index);
  const bool is_number = error == std::errc() && stopped == end;
  if (is_number && options.device_index >= 0 && options.device_index <= kMaxIndex) return {};
  return fail_with_hint(ErrorCode::kInvalidArgument, "'vernier devices' lists what is there",
                        "device '{0}:{1}': expected {0}:INDEX with a number in 0..{2}", entry.name, escape(*name.index),
                        kMaxIndex);
}

}  // namespace

std::span<const BackendEntry> backend_list() {
  static const std::array kEntries{cuda_backend_entry(), cpu_backend_entry(), reference_backend_entry()};
  return kEntries;
}

Result<std::unique_ptr<Backend>> create_backend(std::string_view name, const BackendOptions& options) {
  const DeviceName device = split_device(name);
  std::string known = "auto";
  for (const BackendEntry& entry : backend_list()) {
    const std::string reason = entry.unavailable();
    if (name == "auto" && reason.empty()) return entry.create(options);
    if (device.kind == entry.name) {
      BackendOptions chosen = options;
      VN_TRY(take_index(entry, device, chosen));
      // The reason is that of the first device of its kind; of another one create() knows.
      if (reason.empty() || device.index) return entry.create(chosen);
      return fail(ErrorCode::kDevice, "device '{}' is unavailable: {}", name, reason);
    }
    known += fmt::format(", {}{}", entry.name, entry.has_index ? "[:INDEX]" : "");
  }
  return fail_with_hint(ErrorCode::kInvalidArgument, fmt::format("known devices: {}", known), "unknown device '{}'",
                        escape(name));
}

}  // namespace vernier
