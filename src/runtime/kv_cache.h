// Memory of keys, values and recurrent states: pages of a pool that sequences take and give back, and state slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace vernier {

/// Numbers 0 .. count-1, each either free or taken. Taking yields the lowest free one.
class IdPool {
 public:
  explicit IdPool(std::int32_t count);
  [[nodiscard]] std::int32_t available() const { return static_cast<std::int32_t>(free_.size()); }
  /// Requires available() > 0.
  [[nodiscard]] std::int32_t take();
  void give_back(std::int32_t id);

 private:
  std::vector<std::int32_t> free_;  // a min-heap
};

struct CacheShape {
  std::vector<KvShape> kv;        ///< [layers]
  std::vector<StateShape> state;  ///< [layers] or empty
  DType kv_dtype = DType::kBF16;
  std::int32_t page_size = 32;     ///< positions a page
  std::vector<KvScales> scales{};  ///< [layers] or empty: ones. Only of kF8E4M3
};

/// Bytes of keys and values that one token keeps over all layers.
[[nodiscard]] std::uint64_t kv_bytes_per_token(const CacheShape& shape);
/// Bytes of recurrent state that one sequence keeps over all layers.
[[nodiscard]] std::uint64_t state_bytes_per_sequence(const CacheShape& shape);

/// The caches of all layers on a backend. Allocated once; not thread-safe.
class KvCache {
 public:
  [[nodiscard]] static Result<KvCache> create(Backend& backend, CacheShape shape, std::int32_t num_pages,
                                              std::int32_t num_slots);

  [[nodiscard]] std::span<const LayerCache> layers() const { return layers_; }
  [[nodiscard]] const CacheShape& shape() const { return shape_; }
  [[nodiscard]] std::int32_t page_size() const { return shape_.page_size; }
  [[nodiscard]] std::int32_t num_pages() const { return num_pages_; }
  [[nodiscard]] std::uint64_t size_bytes() const;
  [[nodiscard]] std::int32_t pages_for(std::int64_t tokens) const;
  [[nodiscard]] IdPool& pages() { return pages_; }
  [[nodiscard]] IdPool& slots() { return slots_; }

 private:
  KvCache(CacheShape shape, std::int32_t num_pages, std::int32_t num_slots);

  CacheShape shape_;
  std::int32_t num_pages_ = 0;
  IdPool pages_;
  IdPool slots_;
  std::vector<Buffer> buffers_;
  std::vector<LayerCache> layers_;
};

}  // namespace vernier
