// The public inspect_machine(): CPU, instruction sets and backends.
#include <cstdio>
#include <fstream>

#include "backend/backend.h"
#include "base/cpu_topology.h"
#include "vernier/device.h"

namespace vernier {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return escape(line.substr(colon + 2));
  }
  return "unknown CPU";
}

}  // namespace

MachineInfo inspect_machine() {
  MachineInfo machine;
  machine.cpu_model = cpu_model();
  machine.usable_cpus = default_thread_count();
  for (const BackendEntry& entry : backend_list()) {
    DeviceInfo device{std::string(entry.name), std::string(entry.summary), entry.unavailable(), 0, 0, {}};
    if (entry.details != nullptr) device.details = entry.details();
    if (entry.instruction_sets != nullptr) {
      for (const std::string_view name : entry.instruction_sets()) machine.instruction_sets.emplace_back(name);
    }
    if (device.unavailable.empty()) {
      if (const auto backend = entry.create({})) {
        const MemoryInfo memory = (*backend)->memory();
        device.total_bytes = memory.total_bytes;
        device.available_bytes = memory.available_bytes;
      } else {
        device.unavailable = backend.error().message;
      }
    }
    machine.devices.push_back(std::move(device));
  }
  return machine;
}

}  // namespace vernier
