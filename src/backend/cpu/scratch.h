// Memory that operations reuse from call to call: grows, never shrinks, contents undefined.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/result.h"

namespace vernier {

template <class T>
class Scratch {
 public:
  /// Room for `count` values, aligned to 64 bytes; valid until the next call.
  [[nodiscard]] Result<T*> get(std::size_t count) {
    if (count > count_) {
      data_.reset();
      count_ = 0;
      const std::size_t rounded = (count + kGranule - 1) / kGranule * kGranule;
      data_.reset(static_cast<T*>(std::aligned_alloc(64, rounded * sizeof(T))));
      if (data_ == nullptr) return fail(ErrorCode::kOutOfMemory, "cpu: can't allocate {} scratch values", count);
      count_ = rounded;
    }
    return data_.get();
  }

 private:
  static constexpr std::size_t kGranule = 1024;  // makes the size a multiple of the alignment
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace vernier
