// Limits of memory in made-up /proc and /sys trees.
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace vernier {
namespace {

using FakeGroups = test::FakeRoot;

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
