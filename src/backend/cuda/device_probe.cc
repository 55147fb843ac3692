#include "backend/cuda/device_probe.h"

#include <cuda_runtime_api.h>

#include <cctype>

#include "backend/cuda/cuda_error.h"

namespace vernier::cuda {
namespace {

constexpr int kMinCapability = 80;

std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Why there is no GPU at all, or empty. Fast without a driver: the runtime just looks for the library.
std::string why_no_device(int& count) {
  count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return "";
  (void)cudaGetLastError();
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no NVIDIA driver is installed (libcuda.so.1 isn't found)";
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}", cuda_version(driver),
                       cuda_version(runtime));
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)";
  }
  return fmt::format("the NVIDIA driver doesn't start: {}", cudaGetErrorString(error));
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) (void)cudaGetLastError();
  return value;
}

int capability_of(int device) {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
         attribute(cudaDevAttrComputeCapabilityMinor, device);
}

/// One element of CMAKE_CUDA_ARCHITECTURES. Machine code runs on later minors of its major; the "a" kind on exactly
/// its own; PTX (no suffix has both) on everything later.
bool architecture_covers(std::string_view architecture, int capability) {
  int built = 0;
  while (!architecture.empty() && std::isdigit(static_cast<unsigned char>(architecture.front())) != 0) {
    built = 10 * built + (architecture.front() - '0');
    architecture.remove_prefix(1);
  }
  if (architecture.starts_with('a')) return capability == built;
  const bool machine_code = architecture != "-virtual" && capability / 10 == built / 10 && capability >= built;
  const bool ptx = architecture != "-real" && capability >= built;
  return machine_code || ptx;
}

}  // namespace

bool architectures_cover(std::string_view architectures, int capability) {
  while (!architectures.empty()) {
    const std::size_t end = architectures.find(',');
    if (architecture_covers(architectures.substr(0, end), capability)) return true;
    architectures = end == std::string_view::npos ? "" : architectures.substr(end + 1);
  }
  return false;
}

std::string why_unavailable(int device) {
  int count = 0;
  std::string reason = why_no_device(count);
  if (!reason.empty()) return reason;
  if (device < 0 || device >= count) return fmt::format("there is no GPU {}: the driver shows {}", device, count);
  const int capability = capability_of(device);
  if (capability < kMinCapability) {
    return fmt::format("GPU {} has compute capability {}.{}; Vernier needs 8.0", device, capability / 10,
                       capability % 10);
  }
  if (!architectures_cover(VERNIER_CUDA_ARCHITECTURES, capability)) {
    return fmt::format("GPU {} has compute capability {}.{}, for which this build has no code (it has: {})", device,
                       capability / 10, capability % 10, VERNIER_CUDA_ARCHITECTURES);
  }
  return "";
}

std::string describe_devices() {
  int count = 0;
  if (!why_no_device(count).empty()) return "";
  std::string text;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties = {};
    if (!cuda_status(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties")) continue;
    if (!text.empty()) text += '\n';
    text += fmt::format("GPU {}: {}, {:.1f} GiB, compute capability {}.{}, {} SMs, driver for CUDA {}", device,
                        properties.name, static_cast<double>(properties.totalGlobalMem) / 1073741824.0,
                        properties.major, properties.minor, properties.multiProcessorCount, cuda_version(driver));
  }
  return text;
}

}  // namespace vernier::cuda
