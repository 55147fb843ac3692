#include "backend/cuda/linear/weight_memory.h"

#include <map>
#include <mutex>

#include "backend/cuda/device_memory.h"

namespace vernier::cuda {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{16} << 20;
constexpr std::size_t kAlignment = 256;

/// The slab of a device that still has room. Its weights own it; this only remembers it.
struct OpenSlab {
  std::weak_ptr<const Buffer> memory;
  std::size_t used = 0;
};

std::mutex slabs_mutex;
std::map<int, OpenSlab>& open_slabs() {
  static std::map<int, OpenSlab> slabs;
  return slabs;
}

Result<std::shared_ptr<const Buffer>> allocate_shared(std::size_t size_bytes) {
  VN_ASSIGN(Buffer buffer, allocate_device(size_bytes, "weights"));
  return std::make_shared<const Buffer>(std::move(buffer));
}

}  // namespace

Result<WeightBytes> allocate_weight_bytes(const CudaContext& context, std::size_t size_bytes) {
  if (size_bytes > kSlabBytes / 4) {
    VN_ASSIGN(std::shared_ptr<const Buffer> memory, allocate_shared(size_bytes));
    return WeightBytes{static_cast<std::byte*>(memory->data()), memory};
  }
  const std::scoped_lock lock(slabs_mutex);
  OpenSlab& slab = open_slabs()[context.device];
  std::shared_ptr<const Buffer> memory = slab.memory.lock();
  if (memory == nullptr || slab.used + size_bytes > kSlabBytes) {
    VN_ASSIGN(memory, allocate_shared(kSlabBytes));
    slab = {memory, 0};
  }
  std::byte* const data = static_cast<std::byte*>(memory->data()) + slab.used;
  slab.used += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return WeightBytes{data, std::move(memory)};
}

}  // namespace vernier::cuda
