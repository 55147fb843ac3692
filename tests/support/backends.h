// The backends that the conformance tests run on: all of this build, the CPU backend once for each instruction set that
// this machine has. Those that can't run here are in the list too, so that their tests are skipped by name.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.h"

namespace vernier::test {

struct BackendCase {
  std::string device;
  std::string cpu_isa;           ///< empty: the backend's own choice
  std::string unavailable = {};  ///< why this machine can't run a backend that the build has, or empty
  [[nodiscard]] std::string name() const { return cpu_isa.empty() ? device : device + "_" + cpu_isa; }
  friend void PrintTo(const BackendCase& which, std::ostream* out) { *out << which.name(); }
};

[[nodiscard]] std::vector<BackendCase> all_backends();
/// Marks the running test as skipped if `which` can't run here.
void skip_unavailable(const BackendCase& which);
template <class More>
void skip_unavailable(const std::tuple<BackendCase, More>& which) {
  skip_unavailable(std::get<0>(which));
}

/// Base of tests whose parameter is a BackendCase or a pair that begins with one.
template <class Parameter = BackendCase>
class BackendTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { skip_unavailable(this->GetParam()); }
};

[[nodiscard]] std::unique_ptr<Backend> make_backend(const BackendCase& which, Precision precision, int num_threads = 2);

/// BackendTest with a backend, of precision kBf16, made anew for each test.
class BackendFixture : public BackendTest<> {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    backend_ = make_backend(GetParam(), Precision::kBf16);
    ASSERT_NE(backend_, nullptr);
  }
  std::unique_ptr<Backend> backend_;
};

/// A matrix in backend memory with poisoned padding between rows, which check_padding() looks at again.
class TestMatrix {
 public:
  /// `values` [rows, cols]; empty: NaN everywhere.
  TestMatrix(Backend& backend, std::int64_t rows, std::int64_t cols, const std::vector<float>& values = {},
             std::int64_t padding = 3);
  [[nodiscard]] MatrixView view() const { return view_; }
  /// [rows, cols], after synchronize(); also checks that the padding is untouched.
  [[nodiscard]] std::vector<float> read() const;

 private:
  Backend& backend_;
  Buffer buffer_;
  MatrixView view_;
};

/// A vector in backend memory.
class TestVector {
 public:
  TestVector(Backend& backend, const std::vector<float>& values);
  [[nodiscard]] std::span<const float> span() const { return {static_cast<const float*>(buffer_.data()), size_}; }

 private:
  Buffer buffer_;
  std::size_t size_;
};

/// Status into a gtest failure.
#define VN_EXPECT_OK(expression)                               \
  do {                                                         \
    const auto vn_ok_status = (expression);                    \
    EXPECT_TRUE(vn_ok_status) << vn_ok_status.error().message; \
  } while (false)

/// The value that a linear multiplies with.
[[nodiscard]] float rounded_input(float x, Precision precision);

}  // namespace vernier::test
