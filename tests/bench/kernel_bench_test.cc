#include "bench/kernel_bench.h"

#include <gtest/gtest.h>

#include "bench/kernel_cases.h"

namespace vernier::bench {
namespace {

class KernelSteps : public testing::Test {
 protected:
  void SetUp() override {
    auto created = create_backend("reference", {});
    ASSERT_TRUE(created.has_value());
    backend_ = std::move(*created);
    one_.run = [this](std::int64_t call) -> Status {
      calls_.push_back(call);
      return {};
    };
  }

  Backend& backend() { return *backend_; }

  KernelCase one_;
  std::vector<std::int64_t> calls_;

 private:
  std::unique_ptr<Backend> backend_;
};

TEST_F(KernelSteps, StepsOfManyRepeatTheSameCalls) {
  const KernelCase stepped = in_steps(backend(), one_, 3);
  EXPECT_EQ(stepped.steps, 3);
  ASSERT_TRUE(stepped.run(0).has_value());
  ASSERT_TRUE(stepped.run(1).has_value());
  EXPECT_EQ(calls_, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
}

TEST_F(KernelSteps, StepsOfOneGoOnThroughTheOperands) {
  const KernelCase stepped = in_steps(backend(), one_, 1);
  ASSERT_TRUE(stepped.run(0).has_value());
  ASSERT_TRUE(stepped.run(1).has_value());
  EXPECT_EQ(calls_, (std::vector<std::int64_t>{0, 1}));
}

TEST_F(KernelSteps, EachStepBeginsWithOtherTokens) {
  std::vector<std::vector<std::int32_t>> drawn;
  one_.step.tokens.assign(16, 0);
  one_.step.vocabulary = 1000;
  one_.step.begin = [&](std::span<const std::int32_t> tokens) -> Status {
    drawn.emplace_back(tokens.begin(), tokens.end());
    return {};
  };
  const KernelCase stepped = in_steps(backend(), one_, 2);
  ASSERT_TRUE(stepped.run(0).has_value());
  ASSERT_TRUE(stepped.run(1).has_value());
  ASSERT_EQ(drawn.size(), 2U);
  EXPECT_EQ(drawn[0].size(), 16U);
  EXPECT_NE(drawn[0], drawn[1]);
  for (const std::int32_t token : drawn[0]) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 1000);
  }
}

TEST_F(KernelSteps, AFailureEndsAStep) {
  one_.run = [](std::int64_t call) -> Status { return call == 1 ? fail(ErrorCode::kDevice, "lost") : Status(); };
  EXPECT_FALSE(in_steps(backend(), one_, 3).run(0).has_value());
}

class KernelBench : public testing::Test {
 protected:
  static Result<std::vector<KernelResult>> results_of(KernelBenchOptions options) {
    options.device = "cpu";
    options.threads = 1;
    options.repeat = 1;
    options.working_set_mib = 1;
    std::vector<KernelResult> results;
    VN_TRY(run_kernel_bench(options, [&](const KernelResult& result) -> Status {
      results.push_back(result);
      return {};
    }));
    return results;
  }
};

TEST_F(KernelBench, MeasuresRoutersAndNormsOnAHost) {
  KernelBenchOptions options;
  options.ops = "router,norm";
  options.cases = "8of128 2048x768";
  options.rows = "1,3";
  const auto results = results_of(options);
  ASSERT_TRUE(results.has_value()) << results.error().message;
  ASSERT_EQ(results->size(), 3U);
  EXPECT_EQ((*results)[0].op, "router");
  EXPECT_EQ((*results)[1].tokens, 3);
  EXPECT_EQ((*results)[2].op, "norm");
  for (const KernelResult& result : *results) {
    EXPECT_GT(result.seconds.median, 0.0) << result.op;
    EXPECT_EQ(result.kernels, 0) << "the host launches no steps";
  }
}

TEST_F(KernelBench, TakesOnlyTheCasesThatAreNamed) {
  KernelBenchOptions options;
  options.ops = "attention";
  options.cases = "1 x 1024";
  const auto results = results_of(options);
  ASSERT_TRUE(results.has_value()) << results.error().message;
  ASSERT_EQ(results->size(), 1U);
  EXPECT_EQ((*results)[0].shape, "1 x 1024");
}

TEST_F(KernelBench, RefusesWhatItDoesntKnow) {
  KernelBenchOptions options;
  options.ops = "attention";
  options.cases = "1 x 1025";
  EXPECT_EQ(results_of(options).error().code, ErrorCode::kInvalidArgument);
  options.cases.clear();
  options.ops = "routing";
  EXPECT_EQ(results_of(options).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace vernier::bench
