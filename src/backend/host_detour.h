// Work of the host in the middle of a device's step: a few arrays travel there and one comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"

namespace vernier {

class Backend;

/// Rows of 32-bit numbers in a backend's memory.
struct DetourArray {
  void* device = nullptr;
  std::int64_t rows = 0;
  std::int64_t words = 0;   ///< a row
  std::int64_t stride = 0;  ///< words from a row to the next
};

struct HostDetour {
  static constexpr std::size_t kMostArrays = 4;

  std::span<const DetourArray> arrays;  ///< at most kMostArrays
  bool returns_last = false;            ///< what `work` leaves in the last array goes back to the device
  /// Called once; where the detour is part of a repeated step (Backend::run_step), each time that is run, so it must
  /// hold what it needs. Gets the arrays in host memory, which are its own until it returns, each with its rows one
  /// behind the other. Where no array goes back, it may call operations of the backend, but no detour.
  std::function<Status(std::span<std::byte* const> host)> work;
};

/// A backend that has a quicker way to the host and back than its copies.
class DetourDevice {
 public:
  virtual ~DetourDevice() = default;
  DetourDevice() = default;
  DetourDevice(const DetourDevice&) = delete;
  DetourDevice& operator=(const DetourDevice&) = delete;

  /// As run_on_host().
  [[nodiscard]] virtual Status take_detour(const HostDetour& detour) = 0;
};

/// Lets the host work between a device's operations: on arrays as those called before leave them, for those called
/// afterwards. Returns what `work` does.
[[nodiscard]] Status run_on_host(Backend& device, const HostDetour& detour);

}  // namespace vernier
