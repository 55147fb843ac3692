// Memory for copies where the system refuses to lock some or all of it.
#include "backend/copy_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vernier {
namespace {

TEST(CopyMemory, SaysNothingWhileAllIsLocked) {
  CopyMemory memory([](std::size_t size) { return allocate_pageable(size); });
  ASSERT_TRUE(memory.allocate(1000));
  EXPECT_EQ(memory.warning(), "");
}

TEST(CopyMemory, GoesOnWithOrdinaryMemoryAndSaysSo) {
  int refusals = 0;
  CopyMemory memory([&](std::size_t size) -> Result<Buffer> {
    if (size <= 1 << 20) return allocate_pageable(size);
    ++refusals;
    return fail(ErrorCode::kOutOfMemory, "refused");
  });
  ASSERT_TRUE(memory.allocate(1 << 20));
  for (int i = 0; i < 2; ++i) {
    auto buffer = memory.allocate(3 << 20);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->size(), std::size_t{3} << 20);
    std::memset(buffer->data(), 1, buffer->size());
  }
  EXPECT_EQ(refusals, 2);
  // One sentence, however often it was refused.
  EXPECT_EQ(memory.warning().find("the system refused to page-lock 6.0 of 7.0 MiB"), 0U) << memory.warning();
  EXPECT_NE(memory.warning().find("results are the same"), std::string::npos);
}

TEST(CopyMemory, OtherErrorsStayErrors) {
  CopyMemory memory([](std::size_t) -> Result<Buffer> { return fail(ErrorCode::kDevice, "the GPU is gone"); });
  const auto buffer = memory.allocate(10);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kDevice);
  EXPECT_EQ(memory.warning(), "");
}

TEST(CopyMemory, HugeSizesAreErrors) {
  CopyMemory memory([](std::size_t) -> Result<Buffer> { return fail(ErrorCode::kOutOfMemory, "refused"); });
  const auto buffer = memory.allocate(~std::size_t{0});  // rounded up it would wrap around
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace vernier
