#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace vernier {
namespace {

// Page-locking a private mapping copies its pages: a model would take twice its memory.
TEST(MappedFile, IsMappedShared) {
  const std::string path = testing::TempDir() + "vernier_mapped_file_test";
  std::ofstream(path) << std::string(10000, 'x');
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto bytes = (*file)->bytes({0, 10000});
  ASSERT_TRUE(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes->data());
  std::ifstream maps("/proc/self/maps");
  if (!maps) GTEST_SKIP() << "the system has no /proc";
  bool is_found = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::string access;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> access;
    if (address < begin || address >= end) continue;
    is_found = true;
    EXPECT_EQ(access, "r--s");
  }
  EXPECT_TRUE(is_found);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace vernier
