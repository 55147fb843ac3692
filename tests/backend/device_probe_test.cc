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

TEST(DeviceProbe, EachReasonHasItsOwnSentence) {
  using Kind = DriverAnswer::Kind;
  EXPECT_EQ(reason_without_device({Kind::kFine, 13000, 13000, 1}), "");
  EXPECT_NE(reason_without_device({Kind::kTooOld, 0, 13000, 0}).find("no NVIDIA driver is installed"),
            std::string::npos);
  EXPECT_NE(reason_without_device({Kind::kTooOld, 12020, 13000, 0}).find("supports CUDA 12.2, this build needs 13.0"),
            std::string::npos);
  EXPECT_NE(reason_without_device({Kind::kNoDevice, 13000, 13000, 0}).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_NE(reason_without_device({Kind::kBroken, 13000, 13000, 0, "unknown error"}).find("unknown error"),
            std::string::npos);
}

TEST(DeviceProbe, DevicesThatCannotBeUsed) {
  EXPECT_EQ(reason_against_device(0, 1, 90, "90a-real"), "");
  EXPECT_EQ(reason_against_device(7, 1, 0, "90a-real"), "there is no GPU 7: the driver shows one, GPU 0");
  EXPECT_EQ(reason_against_device(7, 4, 0, "90a-real"), "there is no GPU 7: the driver shows 4, GPU 0 to 3");
  EXPECT_NE(reason_against_device(0, 1, 75, "75-real").find("7.5; Vernier needs 8.0"), std::string::npos);
  EXPECT_NE(
      reason_against_device(0, 1, 120, "90a-real").find("12.0, for which this build has no code (it has: 90a-real)"),
      std::string::npos);
}

TEST(DeviceProbe, ReasonsAreWords) {
  EXPECT_FALSE(why_unavailable(-1).empty());
  EXPECT_FALSE(why_unavailable(1 << 20).empty());
  EXPECT_TRUE(!why_unavailable(0).empty() || !describe_devices().empty());
}

}  // namespace
}  // namespace vernier::cuda
