#include "runtime/kv_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace vernier {
namespace {

std::uint64_t token_bytes(const KvShape& shape, DType dtype) {
  return static_cast<std::uint64_t>(shape.num_kv_heads) * static_cast<std::uint64_t>(shape.head_dim) *
         dtype_bits(dtype) / 8;
}

}  // namespace

IdPool::IdPool(std::int32_t count) : free_(static_cast<std::size_t>(count)) {
  std::iota(free_.begin(), free_.end(), 0);  // ascending order is a valid min-heap
}

std::int32_t IdPool::take() {
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int32_t id = free_.back();
  free_.pop_back();
  return id;
}

void IdPool::give_back(std::int32_t id) {
  free_.push_back(id);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

std::uint64_t kv_bytes_per_token(const CacheShape& shape) {
  std::uint64_t bytes = 0;
  for (const KvShape& layer : shape.kv) bytes += 2 * token_bytes(layer, shape.kv_dtype);
  return bytes;
}

std::uint64_t state_bytes_per_sequence(const CacheShape& shape) {
  std::int64_t floats = 0;
  for (const StateShape& layer : shape.state) floats += layer.recurrent_floats + layer.convolution_floats;
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

KvCache::KvCache(CacheShape shape, std::int32_t num_pages, std::int32_t num_slots)
    : shape_(std::move(shape)), num_pages_(num_pages), pages_(num_pages), slots_(num_slots) {}

Result<KvCache> KvCache::create(Backend& backend, CacheShape shape, std::int32_t num_pages, std::int32_t num_slots) {
  KvCache cache(std::move(shape), num_pages, num_slots);
  const CacheShape& made = cache.shape_;
  const auto take = [&](std::uint64_t size_bytes) -> Result<void*> {
    if (size_bytes == 0) return nullptr;
    VN_ASSIGN(Buffer buffer, backend.allocate(size_bytes));
    cache.buffers_.push_back(std::move(buffer));
    return cache.buffers_.back().data();
  };
  for (std::size_t i = 0; i < made.kv.size(); ++i) {
    LayerCache layer;
    const std::uint64_t bytes = token_bytes(made.kv[i], made.kv_dtype) * static_cast<std::uint64_t>(made.page_size) *
                                static_cast<std::uint64_t>(num_pages);
    VN_ASSIGN(layer.kv.keys, take(bytes));
    VN_ASSIGN(layer.kv.values, take(bytes));
    layer.kv.dtype = made.kv_dtype;
    layer.kv.page_size = made.page_size;
    layer.kv.num_kv_heads = made.kv[i].num_kv_heads;
    layer.kv.head_dim = made.kv[i].head_dim;
    if (i < made.scales.size()) {
      layer.kv.key_scale = made.scales[i].key;
      layer.kv.value_scale = made.scales[i].value;
    }
    if (i < made.state.size()) {
      const auto slots = static_cast<std::uint64_t>(num_slots) * sizeof(float);
      VN_ASSIGN(void* recurrent, take(static_cast<std::uint64_t>(made.state[i].recurrent_floats) * slots));
      VN_ASSIGN(void* convolution, take(static_cast<std::uint64_t>(made.state[i].convolution_floats) * slots));
      layer.recurrent = static_cast<float*>(recurrent);
      layer.convolution = static_cast<float*>(convolution);
    }
    cache.layers_.push_back(layer);
  }
  return cache;
}

std::uint64_t KvCache::size_bytes() const {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.size();
  return bytes;
}

std::int32_t KvCache::pages_for(std::int64_t tokens) const {
  return static_cast<std::int32_t>((tokens + shape_.page_size - 1) / shape_.page_size);
}

}  // namespace vernier
