// Limits of memory in made-up /proc and /sys trees.
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace vernier {
namespace {

class FakeGroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "vernier_cgroup_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(FakeGroups, SmallestLimitOfAllLevelsHolds) {
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
  write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 4294967296U);
  write("/sys/fs/cgroup/memory.max", "8589934592\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 4294967296U);
  write("/sys/fs/cgroup/a/b/memory.max", "4k\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 4294967296U);
}

TEST_F(FakeGroups, Version1IsReadUnderItsController) {
  write("/proc/self/cgroup", "12:cpu:/y\n4:memory:/x\n0::/\n");
  write("/sys/fs/cgroup/cpu/y/memory.limit_in_bytes", "5\n");
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 1073741824U);
}

}  // namespace
}  // namespace vernier
