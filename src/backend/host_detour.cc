#include "backend/host_detour.h"

#include <vector>

#include "backend/backend.h"

namespace vernier {
namespace {

constexpr std::int64_t kWord = 4;

/// By the device's own copies, which wait for everything before.
Status run_between_copies(Backend& device, const HostDetour& detour) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> host;
  for (const DetourArray& array : detour.arrays) {
    const std::int64_t row = array.words * kWord;
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(array.rows * row));
    host.push_back(bytes.data());
    for (std::int64_t r = 0; r < array.rows; ++r) {
      const auto* const from = static_cast<const std::byte*>(array.device) + r * array.stride * kWord;
      VN_TRY(device.copy_to_host(bytes.data() + r * row, from, static_cast<std::size_t>(row)));
    }
  }
  VN_TRY(detour.work(host));
  if (!detour.returns_last) return {};
  const DetourArray& last = detour.arrays.back();
  const std::int64_t row = last.words * kWord;
  for (std::int64_t r = 0; r < last.rows; ++r) {
    auto* const to = static_cast<std::byte*>(last.device) + r * last.stride * kWord;
    VN_TRY(device.copy_to_device(to, host.back() + r * row, static_cast<std::size_t>(row)));
  }
  return {};
}

}  // namespace

Status run_on_host(Backend& device, const HostDetour& detour) {
  if (detour.arrays.empty() || detour.arrays.size() > HostDetour::kMostArrays) {
    return fail(ErrorCode::kInternal, "a detour of {} arrays", detour.arrays.size());
  }
  auto* const quicker = dynamic_cast<DetourDevice*>(&device);
  return quicker != nullptr ? quicker->take_detour(detour) : run_between_copies(device, detour);
}

}  // namespace vernier
