// Which GPUs are there, and in words why the CUDA backend can't use them. Creates no CUDA context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vernier::cuda {

/// True if code built for `architectures` (as CMake names them: "80-real,90a-real", "86", "90-virtual") runs on a
/// device of `capability` (10 * major + minor).
[[nodiscard]] bool architectures_cover(std::string_view architectures, int capability);

/// What the driver answered when it was asked for GPUs. Versions are 1000 * major + 10 * minor; 0: unknown.
struct DriverAnswer {
  enum class Kind : std::uint8_t { kFine, kTooOld, kNoDevice, kBroken } kind = Kind::kFine;
  int driver_version = 0;  ///< of CUDA, that the driver supports; 0: there is no driver
  int runtime_version = 0;
  int num_devices = 0;
  std::string error = {};  ///< kBroken: in the runtime's words
};
/// Why there is no GPU at all, or empty.
[[nodiscard]] std::string reason_without_device(const DriverAnswer& answer);
/// Why GPU `device` of `num_devices` can't be used by a build for `architectures`, or empty. `capability` is 0 where
/// the device doesn't exist.
[[nodiscard]] std::string reason_against_device(int device, int num_devices, int capability,
                                                std::string_view architectures);

/// Why `device` can't be used, or empty.
[[nodiscard]] std::string why_unavailable(int device);

/// One line a GPU: index, name, memory, compute capability, driver. Empty without any.
[[nodiscard]] std::string describe_devices();

}  // namespace vernier::cuda
