// The ring of small uploads with memory that the system won't lock: the same bytes arrive.
#include "backend/cuda/upload_ring.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/device_probe.h"

namespace vernier::cuda {
namespace {

TEST(UploadRing, WorksWithoutPageLockedMemory) {
  if (const std::string reason = why_unavailable(0); !reason.empty()) GTEST_SKIP() << "cuda: " << reason;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    CopyMemory memory([](std::size_t) -> Result<Buffer> { return fail(ErrorCode::kOutOfMemory, "refused"); });
    UploadRing ring(stream, memory);
    ASSERT_TRUE(ring.prepare());
    EXPECT_FALSE(memory.warning().empty());
    std::vector<std::int32_t> sent(7000);  // two to a segment, and in all more than the ring holds
    std::vector<std::int32_t> received(sent.size());
    for (std::int32_t i = 0; i < 100; ++i) {
      std::iota(sent.begin(), sent.end(), i * 1000);
      const auto device = ring.upload(sent.data(), sent.size() * sizeof(std::int32_t));
      ASSERT_TRUE(device) << device.error().message;
      ASSERT_EQ(
          cudaMemcpyAsync(received.data(), *device, sent.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost, stream),
          cudaSuccess);
      const std::vector<std::int32_t> expected = sent;
      std::fill(sent.begin(), sent.end(), -1);  // the ring has its own copy
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_EQ(received, expected) << i;
    }
  }
  (void)cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace vernier::cuda
