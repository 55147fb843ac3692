#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_isa.h"

namespace vernier {
namespace {

TEST(BackendList, NamesAreUniqueAndDescribed) {
  for (const BackendEntry& entry : backend_list()) {
    EXPECT_FALSE(entry.name.empty());
    EXPECT_FALSE(entry.summary.empty());
    int same = 0;
    for (const BackendEntry& other : backend_list()) same += other.name == entry.name;
    EXPECT_EQ(same, 1) << entry.name;
  }
}

TEST(BackendList, HasTheDevicesOfTheDocumentation) {
  std::string names;
  for (const BackendEntry& entry : backend_list()) names += std::string(entry.name) + " ";
  EXPECT_EQ(names, "cuda cpu reference ");
}

TEST(BackendList, AutoTakesTheFirstAvailable) {
  const auto backend = create_backend("auto", {});
  ASSERT_TRUE(backend);
  for (const BackendEntry& entry : backend_list()) {
    if (!entry.unavailable().empty()) continue;
    EXPECT_EQ((*backend)->name(), entry.name);
    break;
  }
}

TEST(BackendList, UnavailableSaysWhy) {
  for (const BackendEntry& entry : backend_list()) {
    if (entry.unavailable().empty()) continue;
    const auto backend = create_backend(entry.name, {});
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::kDevice);
    EXPECT_NE(backend.error().message.find(entry.unavailable()), std::string::npos) << backend.error().message;
  }
}

TEST(BackendList, UnknownNameListsTheKnown) {
  const auto backend = create_backend("tpu\n", {});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(backend.error().message, R"(unknown device 'tpu\n')");
  EXPECT_EQ(backend.error().hint, "known devices: auto, cuda[:INDEX], cpu, reference");
}

TEST(BackendList, IndexOfADevice) {
  for (const BackendEntry& entry : backend_list()) {
    const std::string name(entry.name);
    EXPECT_EQ(entry.has_index, name == "cuda");
    const auto backend = create_backend(name + ":1023", {});
    if (backend) continue;
    // Not malformed: either there is no such device, or the kind has no numbers.
    EXPECT_EQ(backend.error().code, entry.has_index ? ErrorCode::kDevice : ErrorCode::kInvalidArgument);
    if (!entry.has_index) {
      EXPECT_EQ(backend.error().message, "device '" + name + "' takes no index, found ':1023'");
    }
  }
}

TEST(BackendList, MalformedIndicesAreRefused) {
  for (const std::string index :
       {"", "x", "-1", "+1", " 1", "1 ", "1:2", "0x1", "1.0", "1024", "99999999999999999999", "\n"}) {
    const auto backend = create_backend("cuda:" + index, {});
    ASSERT_FALSE(backend) << index;
    EXPECT_EQ(backend.error().code, ErrorCode::kInvalidArgument) << index;
    EXPECT_EQ(backend.error().message,
              "device 'cuda:" + escape(index) + "': expected cuda:INDEX with a number in 0..1023");
  }
  for (const std::string name : {"auto:0", ":0", "tpu:0"}) {
    const auto backend = create_backend(name, {});
    ASSERT_FALSE(backend) << name;
    EXPECT_EQ(backend.error().message, "unknown device '" + name + "'");
  }
}

TEST(CpuIsa, OneIsAlwaysThere) {
  ASSERT_FALSE(cpu_isa_list().empty());
  EXPECT_EQ(cpu_isa_list().back().name, "portable");
  EXPECT_TRUE(cpu_isa_list().back().available());
}

TEST(CpuIsa, TilesAreForThoseWhoAsk) {
  const auto chosen = choose_kernels("");
  ASSERT_TRUE(chosen);
  EXPECT_NE((*chosen)->name, "amx");
}

TEST(CpuIsa, ForcedAndUnknown) {
  for (const CpuIsa& isa : cpu_isa_list()) {
    const auto kernels = choose_kernels(isa.name);
    if (isa.available()) {
      ASSERT_TRUE(kernels) << isa.name;
      EXPECT_EQ((*kernels)->name, isa.name);
    } else {
      ASSERT_FALSE(kernels);
      EXPECT_EQ(kernels.error().code, ErrorCode::kUnsupported);
    }
  }
  const auto unknown = choose_kernels("mmx");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(create_backend("cpu", {.cpu_isa = "mmx"}));
}

}  // namespace
}  // namespace vernier
