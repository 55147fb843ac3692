// The host's part in a step: arrays arrive as the operations before left them, and the last one goes back to those
// behind, where they are small and where they are large.
#include "backend/host_detour.h"

#include <gtest/gtest.h>

#include <array>

#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

class HostDetourConformance : public BackendFixture {};

DetourArray array_of(const TestMatrix& matrix) {
  const MatrixView view = matrix.view();
  return {view.data, view.rows, view.cols, view.stride};
}

std::vector<float> values_of(const std::byte* host, std::size_t count) {
  const auto* const values = reinterpret_cast<const float*>(host);
  return {values, values + count};
}

TEST_P(HostDetourConformance, OperationsAndHostTakeTurns) {
  Random random(3);
  // Within one block of threads, over several, and more than what travels by kernel.
  for (const auto& [rows, cols] : {std::pair{1, 5}, {3, 2048}, {200, 777}}) {
    const std::int64_t count = std::int64_t{rows} * cols;
    const std::vector<float> first = random.floats(count);
    const TestMatrix x(*backend_, rows, cols, first);
    const TestMatrix y(*backend_, rows, cols, std::vector<float>(first.size(), 0.0F));
    const TestMatrix sum(*backend_, rows, cols, std::vector<float>(first.size(), 0.0F));
    std::vector<float> expected(first.size(), 0.0F);
    constexpr int kTurns = 5;
    for (int turn = 1; turn <= kTurns; ++turn) {
      // y = turn * x, the host doubles it, sum += y.
      VN_EXPECT_OK(backend_->combine({x.view(), y.view(), static_cast<float>(turn), 0.0F}));
      const std::array<DetourArray, 2> arrays = {array_of(x), array_of(y)};
      VN_EXPECT_OK(run_on_host(*backend_, {arrays, true, [&](std::span<std::byte* const> host) -> Status {
                                             EXPECT_EQ(values_of(host[0], first.size()), first);
                                             auto* const mine = reinterpret_cast<float*>(host[1]);
                                             for (std::size_t i = 0; i < first.size(); ++i) {
                                               EXPECT_EQ(mine[i], static_cast<float>(turn) * first[i]);
                                               mine[i] *= 2.0F;
                                               expected[i] += mine[i];
                                             }
                                             return {};
                                           }}));
      VN_EXPECT_OK(backend_->combine({y.view(), sum.view(), 1.0F, 1.0F}));
    }
    EXPECT_EQ(x.read(), first);
    EXPECT_EQ(sum.read(), expected);
  }
}

TEST_P(HostDetourConformance, WorkMayCallOperationsAndFail) {
  const TestMatrix x(*backend_, 2, 64, std::vector<float>(128, 1.5F));
  const TestMatrix y(*backend_, 2, 64, std::vector<float>(128, 1.0F));
  const std::array<DetourArray, 1> arrays = {array_of(x)};
  VN_EXPECT_OK(run_on_host(*backend_, {arrays, false, [&](std::span<std::byte* const> host) {
                                         EXPECT_EQ(values_of(host[0], 128), std::vector<float>(128, 1.5F));
                                         return backend_->combine({x.view(), y.view(), 2.0F, 1.0F});
                                       }}));
  EXPECT_EQ(y.read(), std::vector<float>(128, 4.0F));
  const Status failed = run_on_host(
      *backend_, {arrays, true, [](std::span<std::byte* const>) -> Status { return fail(ErrorCode::kIo, "no"); }});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_EQ(x.read(), std::vector<float>(128, 1.5F));
}

TEST_P(HostDetourConformance, RefusesTooManyArrays) {
  const std::array<DetourArray, HostDetour::kMostArrays + 1> arrays = {};
  const auto work = [](std::span<std::byte* const>) -> Status { return {}; };
  EXPECT_FALSE(run_on_host(*backend_, {arrays, false, work}));
  EXPECT_FALSE(run_on_host(*backend_, {{}, false, work}));
}

INSTANTIATE_TEST_SUITE_P(All, HostDetourConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
