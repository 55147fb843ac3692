// What this machine and this build can run models on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vernier {

struct DeviceInfo {
  std::string name;  ///< as --device takes it
  std::string summary;
  std::string unavailable;        ///< empty, or why it can't be used here
  std::uint64_t total_bytes = 0;  ///< memory, when available
  std::uint64_t available_bytes = 0;
  std::string details;  ///< lines about the hardware: each GPU with its memory, capability and driver
};

struct MachineInfo {
  std::string cpu_model;
  std::int32_t usable_cpus = 0;               ///< within affinity mask and cgroup quota
  std::vector<std::string> instruction_sets;  ///< of those that kernels exist for
  std::vector<DeviceInfo> devices;            ///< in the order in which `auto` prefers them
};

[[nodiscard]] MachineInfo inspect_machine();

}  // namespace vernier
