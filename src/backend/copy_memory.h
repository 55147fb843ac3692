// Host memory that copies to a device read from: page-locked where the system grants it, ordinary memory where it
// doesn't.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "backend/backend.h"

namespace vernier {

/// Ordinary host memory, aligned to kRecordAlignment.
[[nodiscard]] Result<Buffer> allocate_pageable(std::size_t size_bytes);

/// Safe to use from several threads.
class CopyMemory {
 public:
  using Allocate = std::function<Result<Buffer>(std::size_t)>;
  /// `page_locked` fails with kOutOfMemory where the system refuses.
  explicit CopyMemory(Allocate page_locked) : page_locked_(std::move(page_locked)) {}

  /// Page-locked memory, or ordinary memory once that was refused.
  [[nodiscard]] Result<Buffer> allocate(std::size_t size_bytes);
  /// One sentence for users when page-locked memory was refused, else empty.
  [[nodiscard]] std::string warning() const;

 private:
  Allocate page_locked_;
  mutable std::mutex mutex_;
  std::uint64_t granted_bytes_ = 0;
  std::uint64_t refused_bytes_ = 0;
};

}  // namespace vernier
