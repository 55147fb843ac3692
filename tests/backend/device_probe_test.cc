// What the CUDA backend says about GPUs, as far as it can be tested without one.
#include "backend/cuda/device_probe.h"

#include <gtest/gtest.h>

namespace vernier::cuda {
namespace {

TEST(DeviceProbe, MachineCodeRunsOnLaterMinorsOfItsMajor) {
  EXPECT_TRUE(architectures_cover("80-real", 80));
  EXPECT_TRUE(architectures_cover("80-real", 86));
  EXPECT_FALSE(architectures_cover("86-real", 80));
  EXPECT_FALSE(architectures_cover("80-real", 90));
}

TEST(DeviceProbe, ArchitectureSpecificCodeRunsOnItsOwnAlone) {
  EXPECT_TRUE(architectures_cover("90a-real", 90));
  EXPECT_FALSE(architectures_cover("90a-real", 100));
  EXPECT_FALSE(architectures_cover("90a-real", 80));
  EXPECT_FALSE(architectures_cover("90a", 100));
}

TEST(DeviceProbe, PtxRunsOnAllThatIsLater) {
  EXPECT_TRUE(architectures_cover("80-virtual", 120));
  EXPECT_TRUE(architectures_cover("80", 90));
  EXPECT_FALSE(architectures_cover("90-virtual", 80));
}

TEST(DeviceProbe, OneOfSeveralIsEnough) {
  EXPECT_TRUE(architectures_cover("80-real,90a-real", 90));
  EXPECT_TRUE(architectures_cover("90a-real,80-real", 86));
  EXPECT_FALSE(architectures_cover("80-real,90a-real", 75));
  EXPECT_FALSE(architectures_cover("", 90));
}

TEST(DeviceProbe, ReasonsAreWords) {
  EXPECT_FALSE(why_unavailable(-1).empty());
  EXPECT_FALSE(why_unavailable(1 << 20).empty());
  EXPECT_TRUE(!why_unavailable(0).empty() || !describe_devices().empty());
}

}  // namespace
}  // namespace vernier::cuda
