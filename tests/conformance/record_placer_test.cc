// Records that a device lays out by itself are the weights that place() makes, for every format.
#include "backend/record_placer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/packed_weight.h"
#include "format/stored_rows.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

constexpr std::size_t kPage = 4096;

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
    // Two parcels in turn, one staged, the other read where it lies if that may be page-locked; raw bytes lie between
    // the weights. The last turn knows the weights already.
    std::vector<Weight> known;
    for (int turn = 0; turn < 4; ++turn) {
      const std::vector<float> raw = Random(turn + 1).floats(64);
      std::uint64_t record_size = 256;
      for (const Weight& weight : weights) record_size += backend_->record_bytes(weight);
      const Buffer records = backend_->allocate(record_size).value();
      auto* record = static_cast<std::byte*>(records.data());
      std::vector<RecordPlacer::Run> runs = {{std::as_bytes(std::span(raw)), nullptr}};
      std::vector<RecordPlacer::Part> parts = {{nullptr, nullptr, runs[0].bytes, record}};
      record += 256;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        for (const StoredRows& rows : {code_rows(weights[i]), scale_rows(weights[i])}) {
          if (rows.size() == 0) continue;
          const std::span bytes(rows.data, static_cast<std::size_t>((rows.rows - 1) * rows.stride + rows.row_bytes));
          runs.push_back({bytes, nullptr});
        }
        parts.push_back({&weights[i], turn == 3 ? &known[i] : nullptr, {}, record});
        record += backend_->record_bytes(weights[i]);
      }
      std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.bytes.data() < b.bytes.data(); });
      std::size_t size = 0;
      for (const RecordPlacer::Run& run : runs) size += align_record(run.bytes.size());
      std::vector<std::byte> unlocked(size + 2 * kPage);
      const std::size_t gap = kPage - reinterpret_cast<std::uintptr_t>(unlocked.data()) % kPage;
      const auto lock = placer->lock(std::span(unlocked).subspan(gap, size / kPage * kPage + 1));
      const bool reads_it = turn % 2 == 1 && lock.has_value();
      std::byte* staging = reads_it ? unlocked.data() + gap : placer->stage(turn % 2, size).value();
      for (RecordPlacer::Run& run : runs) {
        std::memcpy(staging, run.bytes.data(), run.bytes.size());
        run.source = staging;
        staging += align_record(run.bytes.size());
      }
      VN_EXPECT_OK(placer->send(turn % 2, runs));
      const std::span all(parts);
      VN_EXPECT_OK(placer->place(turn % 2, all.first(2)));
      VN_EXPECT_OK(placer->place(turn % 2, all.subspan(2)));
      const auto placed = placer->finish();
      ASSERT_TRUE(placed) << placed.error().message;
      ASSERT_EQ(placed->size(), turn == 3 ? 0 : weights.size());
      if (turn == 3) {
        auto* at = static_cast<std::byte*>(records.data()) + 256;
        for (std::size_t i = 0; i < known.size(); ++i) {
          known[i] = moved_weight(known[i], known[i].codes, at);
          at += backend_->record_bytes(weights[i]);
        }
      } else {
        known = *placed;
      }
      std::vector<float> back(64);
      VN_EXPECT_OK(backend_->copy_to_host(back.data(), records.data(), 256));
      EXPECT_EQ(back, raw);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto expected = backend_->place(weights[i]);
        ASSERT_TRUE(expected) << expected.error().message;
        EXPECT_EQ(product(*backend_, known[i]), product(*backend_, *expected)) << format.name;
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
