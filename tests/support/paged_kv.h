// A paged KV cache of one layer for tests: pages in shuffled order, filled with NaN until written.
#pragma once

#include <vector>

#include "format/block_format.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {

struct KvSpec {
  DType dtype = DType::kBF16;
  std::int32_t page_size = 16;
  std::int32_t num_kv_heads = 2;
  std::int32_t head_dim = 32;
  std::int32_t num_pages = 16;
};

class PagedKv {
 public:
  PagedKv(Backend& backend, const KvSpec& spec) : backend_(backend), spec_(spec) {
    const auto elements = std::int64_t{spec.num_pages} * spec.page_size * spec.num_kv_heads * spec.head_dim;
    // All bits set is NaN in each element type: reading a position that nobody wrote spoils the result.
    const std::vector<std::byte> poison(static_cast<std::size_t>(elements * dtype_bits(spec.dtype) / 8),
                                        std::byte{0xFF});
    for (Buffer* buffer : {&keys_, &values_}) {
      *buffer = backend.allocate(poison.size()).value();
      VN_EXPECT_OK(backend.copy_to_device(buffer->data(), poison.data(), poison.size()));
    }
  }

  [[nodiscard]] KvLayer layer() const {
    KvLayer kv;
    kv.keys = keys_.data();
    kv.values = values_.data();
    kv.dtype = spec_.dtype;
    kv.page_size = spec_.page_size;
    kv.num_kv_heads = spec_.num_kv_heads;
    kv.head_dim = spec_.head_dim;
    if (spec_.dtype == DType::kF8E4M3) {
      kv.key_scale = 0.03F;
      kv.value_scale = 0.02F;
    }
    return kv;
  }

  /// Pages for `positions` positions, out of order, none given out twice.
  [[nodiscard]] std::vector<std::int32_t> take_pages(std::int64_t positions) {
    std::vector<std::int32_t> pages;
    for (std::int64_t p = 0; p < positions; p += spec_.page_size) {
      pages.push_back((next_page_++ * 7 + 3) % spec_.num_pages);  // a permutation: num_pages is a power of two
    }
    return pages;
  }

  /// Keys or values as stored, decoded on the host; index as KvLayer says.
  [[nodiscard]] std::vector<double> read(const Buffer& buffer, float scale) const {
    std::vector<std::byte> bytes(buffer.size());
    VN_EXPECT_OK(backend_.synchronize());
    VN_EXPECT_OK(backend_.copy_to_host(bytes.data(), buffer.data(), bytes.size()));
    std::vector<double> result;
    const std::size_t step = dtype_bits(spec_.dtype) / 8;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      if (spec_.dtype == DType::kF32) result.push_back(F32Codec::decode(load_u32(bytes.data() + at)));
      if (spec_.dtype == DType::kBF16) result.push_back(BF16Codec::decode(load_u16(bytes.data() + at)));
      if (spec_.dtype == DType::kF8E4M3) {
        result.push_back(static_cast<double>(E4M3Codec::decode(load_u8(bytes.data() + at))) * scale);
      }
    }
    return result;
  }
  [[nodiscard]] std::vector<double> read_keys() const { return read(keys_, layer().key_scale); }
  [[nodiscard]] std::vector<double> read_values() const { return read(values_, layer().value_scale); }

 private:
  Backend& backend_;
  KvSpec spec_;
  Buffer keys_;
  Buffer values_;
  std::int32_t next_page_ = 0;
};

/// Index of (position, kv head, dim 0) in what PagedKv::read_keys() returns.
[[nodiscard]] inline std::size_t kv_at(const KvSpec& spec, std::span<const std::int32_t> pages, std::int64_t position,
                                       std::int64_t head) {
  const std::int64_t page = pages[static_cast<std::size_t>(position / spec.page_size)];
  return static_cast<std::size_t>(((page * spec.page_size + position % spec.page_size) * spec.num_kv_heads + head) *
                                  spec.head_dim);
}

}  // namespace vernier::test
