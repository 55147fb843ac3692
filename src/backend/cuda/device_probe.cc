#include "backend/cuda/device_probe.h"

#include <cuda_runtime_api.h>

#include <cctype>

#include "backend/cuda/cuda_error.h"

namespace vernier::cuda {
namespace {

constexpr int kMinCapability = 80;

std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Fast without a driver: the runtime just looks for the library.
DriverAnswer ask_driver() {
  DriverAnswer answer;
  const cudaError_t error = cudaGetDeviceCount(&answer.num_devices);
  if (error == cudaSuccess && answer.num_devices > 0) return answer;
  (void)cudaGetLastError();
  if (cudaDriverGetVersion(&answer.driver_version) != cudaSuccess) answer.driver_version = 0;
  (void)cudaRuntimeGetVersion(&answer.runtime_version);
  const bool none = error == cudaErrorNoDevice || error == cudaSuccess;
  answer.kind = error == cudaErrorInsufficientDriver ? DriverAnswer::Kind::kTooOld
                : none                               ? DriverAnswer::Kind::kNoDevice
                                                     : DriverAnswer::Kind::kBroken;
  answer.error = cudaGetErrorString(error);
  return answer;
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

std::string reason_without_device(const DriverAnswer& answer) {
  if (answer.kind == DriverAnswer::Kind::kFine) return "";
  if (answer.driver_version == 0) return "no NVIDIA driver is installed (libcuda.so.1 isn't found)";
  switch (answer.kind) {
    case DriverAnswer::Kind::kTooOld:
      return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}",
                         cuda_version(answer.driver_version), cuda_version(answer.runtime_version));
    case DriverAnswer::Kind::kNoDevice: return "the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)";
    default: return fmt::format("the NVIDIA driver doesn't start: {}", answer.error);
  }
}

std::string reason_against_device(int device, int num_devices, int capability, std::string_view architectures) {
  if (device < 0 || device >= num_devices) {
    return num_devices == 1 ? fmt::format("there is no GPU {}: the driver shows one, GPU 0", device)
                            : fmt::format("there is no GPU {}: the driver shows {}, GPU 0 to {}", device, num_devices,
                                          num_devices - 1);
  }
  if (capability < kMinCapability) {
    return fmt::format("GPU {} has compute capability {}.{}; Vernier needs 8.0 or later", device, capability / 10,
                       capability % 10);
  }
  if (!architectures_cover(architectures, capability)) {
    return fmt::format("GPU {} has compute capability {}.{}, for which this build has no code (it has: {})", device,
                       capability / 10, capability % 10, architectures);
  }
  return "";
}

std::string why_unavailable(int device) {
  const DriverAnswer answer = ask_driver();
  std::string reason = reason_without_device(answer);
  if (!reason.empty()) return reason;
  const bool exists = device >= 0 && device < answer.num_devices;
  return reason_against_device(device, answer.num_devices, exists ? capability_of(device) : 0,
                               VERNIER_CUDA_ARCHITECTURES);
}

std::string describe_devices() {
  const DriverAnswer answer = ask_driver();
  if (!reason_without_device(answer).empty()) return "";
  std::string text;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  for (int device = 0; device < answer.num_devices; ++device) {
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
