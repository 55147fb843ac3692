#include "backend/host_backend.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/checked_math.h"
#include "format/format_list.h"

namespace vernier {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

MemoryInfo HostBackend::memory() const {
  MemoryInfo info;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemTotal:") info.total_bytes = kib * 1024;
    if (key == "MemAvailable:") info.available_bytes = kib * 1024;
  }
  return info;
}

Status HostBackend::supports(FormatId) const { return {}; }

Result<Buffer> HostBackend::allocate(std::size_t size_bytes) {
  const auto rounded = CheckedU64(size_bytes == 0 ? 1 : size_bytes).align_up(kAlignment).value();
  void* data = rounded ? std::aligned_alloc(kAlignment, *rounded) : nullptr;
  if (data == nullptr) {
    return fail(ErrorCode::kOutOfMemory, "{}: can't allocate {} bytes of memory", name(), size_bytes);
  }
  return Buffer(data, size_bytes, [](void* memory) { std::free(memory); });
}

Result<Weight> HostBackend::place(const Weight& host) { return host; }

Status HostBackend::copy_to_device(void* device, const void* host, std::size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(device, host, size_bytes);
  return {};
}

Status HostBackend::copy_to_host(void* host, const void* device, std::size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(host, device, size_bytes);
  return {};
}

Status HostBackend::synchronize() { return {}; }

}  // namespace vernier
