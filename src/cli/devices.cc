// `vernier devices`: what this machine and build can run on.
#include <memory>

#include "base/json.h"
#include "cli/report.h"
#include "cli/verb.h"
#include "vernier/device.h"

namespace vernier::cli {
namespace {

Json machine_json(const MachineInfo& machine) {
  JsonArray sets;
  for (const std::string& set : machine.instruction_sets) sets.push_back(set);
  JsonArray devices;
  for (const DeviceInfo& device : machine.devices) {
    JsonObject item;
    item.set("name", device.name);
    item.set("summary", device.summary);
    item.set("available", device.unavailable.empty());
    if (!device.unavailable.empty()) item.set("reason", device.unavailable);
    item.set("total_bytes", device.total_bytes);
    item.set("available_bytes", device.available_bytes);
    if (!device.details.empty()) item.set("details", device.details);
    devices.push_back(std::move(item));
  }
  JsonObject object;
  object.set("cpu", machine.cpu_model);
  object.set("usable_cpus", machine.usable_cpus);
  object.set("instruction_sets", std::move(sets));
  object.set("devices", std::move(devices));
  return object;
}

int devices(bool json) {
  const MachineInfo machine = inspect_machine();
  if (json) {
    print(to_json_text(machine_json(machine), 1) + "\n");
    return kExitDone;
  }
  std::string sets;
  for (const std::string& set : machine.instruction_sets) sets += " " + set;
  print(fmt::format("cpu        {}, {} usable cores, kernels for:{}\n", machine.cpu_model, machine.usable_cpus, sets));
  for (const DeviceInfo& device : machine.devices) {
    if (device.unavailable.empty()) {
      print(fmt::format("{:<10} {}; {:.1f} GiB of {:.1f} GiB free\n", device.name, device.summary,
                        static_cast<double>(device.available_bytes) / 1073741824.0,
                        static_cast<double>(device.total_bytes) / 1073741824.0));
    } else {
      print(fmt::format("{:<10} {}; unavailable: {}\n", device.name, device.summary, device.unavailable));
    }
    for (std::string_view rest = device.details; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      print(fmt::format("{:<10} {}\n", "", rest.substr(0, end)));
      rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
  }
  return kExitDone;
}

}  // namespace

VerbBody declare_devices(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON object");
  return [json] { return devices(*json); };
}

}  // namespace vernier::cli
