// Which GPUs are there, and in words why the CUDA backend can't use them. Creates no CUDA context.
#pragma once

#include <string>
#include <string_view>

namespace vernier::cuda {

/// True if code built for `architectures` (as CMake names them: "80-real,90a-real", "86", "90-virtual") runs on a
/// device of `capability` (10 * major + minor).
[[nodiscard]] bool architectures_cover(std::string_view architectures, int capability);

/// Why `device` can't be used, or empty.
[[nodiscard]] std::string why_unavailable(int device);

/// One line a GPU: index, name, memory, compute capability, driver. Empty without any.
[[nodiscard]] std::string describe_devices();

}  // namespace vernier::cuda
