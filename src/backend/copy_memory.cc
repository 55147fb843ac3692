#include "backend/copy_memory.h"

#include <sys/resource.h>

#include <cstdlib>

#include "backend/packed_weight.h"
#include "base/checked_math.h"

namespace vernier {
namespace {

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

/// What the system allows to lock, where it isn't everything.
std::string limit_words() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(" (`ulimit -l` allows {:.1f} MiB of locked memory)", mebibytes(limit.rlim_cur));
}

}  // namespace

Result<Buffer> allocate_pageable(std::size_t size_bytes) {
  const auto rounded = CheckedU64(size_bytes == 0 ? 1 : size_bytes).align_up(kRecordAlignment).value();
  void* data = rounded ? std::aligned_alloc(kRecordAlignment, *rounded) : nullptr;
  if (data == nullptr) return fail(ErrorCode::kOutOfMemory, "can't allocate {} bytes of host memory", size_bytes);
  return Buffer(data, size_bytes, [](void* memory) { std::free(memory); });
}

Result<Buffer> CopyMemory::allocate(std::size_t size_bytes) {
  auto locked = page_locked_(size_bytes);
  if (!locked && locked.error().code != ErrorCode::kOutOfMemory) return locked;
  const std::lock_guard lock(mutex_);
  (locked ? granted_bytes_ : refused_bytes_) += size_bytes;
  return locked ? std::move(locked) : allocate_pageable(size_bytes);
}

std::string CopyMemory::warning() const {
  const std::lock_guard lock(mutex_);
  if (refused_bytes_ == 0) return "";
  return fmt::format(
      "the system refused to page-lock {:.1f} of {:.1f} MiB of host memory{}: copies from it to the GPU are slower and "
      "run beside no work; results are the same",
      mebibytes(refused_bytes_), mebibytes(refused_bytes_ + granted_bytes_), limit_words());
}

}  // namespace vernier
