#include "support/backends.h"

#include <bit>
#include <limits>

#include "backend/cpu/cpu_isa.h"
#include "format/scalar_codecs.h"

namespace vernier::test {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

}  // namespace

std::vector<BackendCase> all_backends() {
  std::vector<BackendCase> cases;
  for (const BackendEntry& entry : backend_list()) {
    const std::string unavailable = entry.unavailable();
    if (!unavailable.empty() && entry.details == nullptr) continue;  // not in this build
    if (entry.name != "cpu") {
      cases.push_back({std::string(entry.name), "", unavailable});
      continue;
    }
    for (const CpuIsa& isa : cpu_isa_list()) {
      if (isa.available()) cases.push_back({"cpu", std::string(isa.name), ""});
    }
  }
  return cases;
}

void skip_unavailable(const BackendCase& which) {
  if (!which.unavailable.empty()) GTEST_SKIP() << which.device << ": " << which.unavailable;
}

std::unique_ptr<Backend> make_backend(const BackendCase& which, Precision precision, int num_threads) {
  auto backend =
      create_backend(which.device, {.precision = precision, .num_threads = num_threads, .cpu_isa = which.cpu_isa});
  EXPECT_TRUE(backend) << backend.error().message;
  return backend ? *std::move(backend) : nullptr;
}

TestMatrix::TestMatrix(Backend& backend, std::int64_t rows, std::int64_t cols, const std::vector<float>& values,
                       std::int64_t padding)
    : backend_(backend) {
  const std::int64_t stride = cols + padding;
  std::vector<float> host(static_cast<std::size_t>(rows * stride), kPoison);
  for (std::int64_t r = 0; r < rows && !values.empty(); ++r) {
    std::copy_n(values.begin() + r * cols, cols, host.begin() + r * stride);
  }
  const std::size_t bytes = host.size() * sizeof(float);
  buffer_ = backend.allocate(bytes).value();
  VN_EXPECT_OK(backend.copy_to_device(buffer_.data(), host.data(), bytes));
  view_ = {static_cast<float*>(buffer_.data()), rows, cols, stride};
}

std::vector<float> TestMatrix::read() const {
  std::vector<float> host(static_cast<std::size_t>(view_.rows * view_.stride));
  VN_EXPECT_OK(backend_.synchronize());
  VN_EXPECT_OK(backend_.copy_to_host(host.data(), view_.data, host.size() * sizeof(float)));
  std::vector<float> values;
  for (std::int64_t r = 0; r < view_.rows; ++r) {
    const auto row = host.begin() + r * view_.stride;
    values.insert(values.end(), row, row + view_.cols);
    for (auto it = row + view_.cols; it != row + view_.stride; ++it) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(*it), std::bit_cast<std::uint32_t>(kPoison)) << "padding of row " << r;
    }
  }
  return values;
}

TestVector::TestVector(Backend& backend, const std::vector<float>& values) : size_(values.size()) {
  buffer_ = backend.allocate(values.size() * sizeof(float)).value();
  VN_EXPECT_OK(backend.copy_to_device(buffer_.data(), values.data(), values.size() * sizeof(float)));
}

float rounded_input(float x, Precision precision) {
  return precision == Precision::kBf16 ? BF16Codec::decode(BF16Codec::encode(x)) : x;
}

}  // namespace vernier::test
