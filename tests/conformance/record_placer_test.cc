// Records that a device lays out by itself are the weights that place() makes, for every format.
#include "backend/record_placer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/packed_weight.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

class RecordPlacerConformance : public BackendFixture {};

std::vector<float> product(Backend& backend, const Weight& weight) {
  const TestMatrix x(backend, 3, weight.cols, Random(7).floats(3 * weight.cols));
  const TestMatrix y(backend, 3, weight.rows);
  const LinearOutput output = {.weight = &weight, .bias = {}, .y = y.view()};
  VN_EXPECT_OK(backend.linear({x.view(), std::span(&output, 1)}));
  return y.read();
}

TEST_P(RecordPlacerConformance, WeightsAreThoseOfPlace) {
  auto* const placer = dynamic_cast<RecordPlacer*>(backend_.get());
  if (placer == nullptr) GTEST_SKIP() << "lays out no records";
  for (const FormatCase& format : all_format_cases()) {
    std::vector<Weight> weights;
    for (const OuterKind outer : {OuterKind::kScalar, OuterKind::kPerRow}) {
      weights.push_back(random_weight({.format = format.format,
                                       .layout = format.layout,
                                       .rows = 72,
                                       .cols = 3 * format.cols_multiple * (format.cols_multiple < 64 ? 16 : 1),
                                       .row_padding = 3,
                                       .outer = outer,
                                       .seed = weights.size() + 1}));
    }
    // Twice, so that both halves of the staging memory are used again; raw bytes lie between the weights.
    for (int turn = 0; turn < 3; ++turn) {
      const std::vector<float> raw = Random(turn + 1).floats(64);
      std::size_t size = 256;
      std::uint64_t record_size = 256;
      for (const Weight& weight : weights) {
        size += stored_bytes(weight);
        record_size += backend_->record_bytes(weight);
      }
      const Buffer records = backend_->allocate(record_size).value();
      auto* record = static_cast<std::byte*>(records.data());
      std::byte* staging = placer->stage(size).value();
      std::vector<RecordPlacer::Part> parts;
      std::memcpy(staging, raw.data(), 256);
      parts.push_back({.staged = {}, .host = nullptr, .raw = {staging, 256}, .record = record});
      record += 256;
      staging += 256;
      for (const Weight& weight : weights) {
        parts.push_back({pack_as_stored(weight, staging), &weight, {}, record});
        staging += stored_bytes(weight);
        record += backend_->record_bytes(weight);
      }
      VN_EXPECT_OK(placer->place(parts, size));
      const auto placed = placer->finish();
      ASSERT_TRUE(placed) << placed.error().message;
      ASSERT_EQ(placed->size(), weights.size());
      std::vector<float> back(64);
      VN_EXPECT_OK(backend_->copy_to_host(back.data(), records.data(), 256));
      EXPECT_EQ(back, raw);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto expected = backend_->place(weights[i]);
        ASSERT_TRUE(expected) << expected.error().message;
        EXPECT_EQ(product(*backend_, (*placed)[i]), product(*backend_, *expected)) << format.name;
      }
    }
  }
}

/// Records are copied whole, also to files: what lies between a weight's parts doesn't depend on what the memory held.
TEST_P(RecordPlacerConformance, RecordsOfAWeightAreTheSameBytes) {
  for (const FormatCase& format : all_format_cases()) {
    const Weight weight = random_weight({.format = format.format,
                                         .layout = format.layout,
                                         .rows = 72,
                                         .cols = 3 * format.cols_multiple * (format.cols_multiple < 64 ? 16 : 1),
                                         .outer = OuterKind::kPerRow});
    const std::uint64_t size = backend_->record_bytes(weight);
    Buffer records[2];
    for (Buffer& record : records) {
      {
        const Buffer used = backend_->allocate(size).value();  // whose memory may be that of what comes next
        const std::vector<std::byte> dirt(size, static_cast<std::byte>(&record - records + 1));
        VN_EXPECT_OK(backend_->copy_to_device(used.data(), dirt.data(), size));
      }
      record = backend_->allocate_host(size).value();
      std::memset(record.data(), 0x55, size);
      ASSERT_TRUE(backend_->pack(weight, static_cast<std::byte*>(record.data())));
    }
    EXPECT_EQ(std::memcmp(records[0].data(), records[1].data(), size), 0) << format.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordPlacerConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
