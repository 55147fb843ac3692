// What the topology makes of made-up /proc and /sys trees, sensible and not.
#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace vernier {
namespace {

using Cpus = std::vector<int>;

class FakeSystem : public test::FakeRoot {
 protected:
  void write_siblings(int cpu, const std::string& text, const std::string& name = "core_cpus_list") const {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name, text);
  }
};

TEST_F(FakeSystem, HyperThreadsAreOneCore) {
  for (int cpu = 0; cpu < 4; ++cpu) write_siblings(cpu, std::to_string(cpu % 2) + "," + std::to_string(cpu % 2 + 2));
  EXPECT_EQ(one_cpu_per_core(Cpus{0, 1, 2, 3}, root_), (Cpus{0, 1}));
  EXPECT_EQ(one_cpu_per_core(Cpus{2, 3}, root_), (Cpus{2, 3}));
  EXPECT_EQ(one_cpu_per_core(Cpus{1, 3}, root_), (Cpus{1}));
}

TEST_F(FakeSystem, OlderNameOfSiblings) {
  write_siblings(0, "0-1\n", "thread_siblings_list");
  write_siblings(1, "0-1\n", "thread_siblings_list");
  EXPECT_EQ(one_cpu_per_core(Cpus{0, 1}, root_), (Cpus{0}));
}

TEST_F(FakeSystem, NonsenseAboutSiblingsIsIgnored) {
  write_siblings(0, "7");  // not even itself
  write_siblings(1, "7");
  write_siblings(2, "many");
  write_siblings(3, "0-99999999");
  EXPECT_EQ(one_cpu_per_core(Cpus{0, 1, 2, 3, 4}, root_), (Cpus{0, 1, 2, 3, 4}));
}

TEST_F(FakeSystem, QuotaOfVersion2IsTheSmallestOfAllLevels) {
  write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), std::nullopt);
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), std::nullopt);
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
}

TEST_F(FakeSystem, PathOfTheHostMeansTheContainersRoot) {
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  for (const char* line : {"0::/docker/not/mounted/here\n", "0::/../../elsewhere\n", "0::/\n", "0::\n"}) {
    write("/proc/self/cgroup", line);
    EXPECT_EQ(cgroup_cpu_quota(root_), 3.0) << line;
  }
}

TEST_F(FakeSystem, QuotaOfVersion1) {
  write("/proc/self/cgroup", "12:memory:/x\n3:cpu,cpuacct:/x\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 2.5);
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 2.5);
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root_), 0.5);
}

TEST_F(FakeSystem, NonsenseAboutGroupsIsIgnored) {
  for (const std::string& text :
       {std::string("::::"), std::string("no colon"), std::string(100000, ':'), "0::" + std::string(10000, '/'),
        std::string("3:cpu/../../x,cpu:/y\n"), std::string("\n\n\n")}) {
    write("/proc/self/cgroup", text);
    EXPECT_EQ(cgroup_cpu_quota(root_), std::nullopt);
  }
}

TEST_F(FakeSystem, MemoryNodes) {
  EXPECT_TRUE(memory_nodes(root_).empty());
  write("/sys/devices/system/node/online", "0-2\n");
  write("/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  write("/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
  write("/sys/devices/system/node/node2/cpulist", "\n");  // memory alone
  EXPECT_EQ(memory_nodes(root_), (std::vector<Cpus>{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  write("/sys/devices/system/node/online", "0-x\n");
  EXPECT_TRUE(memory_nodes(root_).empty());
}

TEST(ThreadPlaces, NeighboursShareANode) {
  const std::vector<Cpus> nodes = {{0, 1, 4, 5}, {2, 3, 6, 7}};
  const Cpus cpus = {0, 1, 2, 3};
  EXPECT_EQ(thread_places(4, cpus, nodes), (std::vector<Cpus>{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  EXPECT_TRUE(thread_places(3, cpus, nodes).empty());        // the system may spread three
  EXPECT_TRUE(thread_places(2, Cpus{0, 1}, nodes).empty());  // one node alone is in use
  EXPECT_TRUE(thread_places(4, cpus, std::vector<Cpus>{{0, 1, 2, 3}}).empty());
  EXPECT_TRUE(thread_places(4, cpus, std::vector<Cpus>{{0, 1}, {2}}).empty());        // CPU 3 is nowhere
  EXPECT_TRUE(thread_places(4, cpus, std::vector<Cpus>{{0, 1, 2}, {2, 3}}).empty());  // CPU 2 is twice
}

TEST(ThreadPlaces, BindingToNonsenseDoesNothing) {
  keep_on_cpus(pthread_self(), Cpus{-1, 1 << 20});
  keep_on_cpus(pthread_self(), {});
  EXPECT_FALSE(usable_cpus().empty());
}

}  // namespace
}  // namespace vernier
