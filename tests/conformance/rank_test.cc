// rank_logits on every backend against a plain sort, and its sums of odds to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/odds.h"
#include "backend/ranking.h"
#include "support/backends.h"
#include "support/random_weight.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

TEST(Odds, AreRoundedExponentials) {
  EXPECT_EQ(odds_of(3.5F, 3.5F, 1.0), std::uint64_t{1} << 39U);
  EXPECT_EQ(odds_of(-std::numeric_limits<float>::infinity(), 3.5F, 1.0), 0U);
  EXPECT_EQ(odds_of(-1e30F, 1e30F, 1.0 / 100.0), 0U);
  for (int i = 0; i < 100000; ++i) {
    const float logit = -30.0F * static_cast<float>(i) / 1e5F;
    const double exact = std::exp(static_cast<double>(logit) / 0.7) * kTopOdds;
    ASSERT_NEAR(static_cast<double>(odds_of(logit, 0.0F, 1.0 / 0.7)), exact, 0.51) << logit;
  }
}

class RankConformance : public BackendFixture {
 protected:
  struct Result {
    std::vector<RankedRow> rows;
    std::vector<RankedLogit> entries;
  };
  Result rank(std::int64_t rows, std::int64_t ids, const std::vector<float>& logits,
              const std::vector<RankWish>& wishes, std::int32_t count) {
    const TestMatrix matrix(*backend_, rows, ids, logits);
    Result result{std::vector<RankedRow>(static_cast<std::size_t>(rows)),
                  std::vector<RankedLogit>(static_cast<std::size_t>(rows * count))};
    const std::size_t row_bytes = result.rows.size() * sizeof(RankedRow);
    const std::size_t entry_bytes = result.entries.size() * sizeof(RankedLogit);
    const Buffer row_buffer = backend_->allocate(row_bytes).value();
    const Buffer entry_buffer = backend_->allocate(entry_bytes).value();
    // Entries that a row has no use for stay as they are, and are read all the same.
    VN_EXPECT_OK(backend_->copy_to_device(row_buffer.data(), result.rows.data(), row_bytes));
    VN_EXPECT_OK(backend_->copy_to_device(entry_buffer.data(), result.entries.data(), entry_bytes));
    VN_EXPECT_OK(backend_->rank_logits({matrix.view(), wishes, count, static_cast<RankedRow*>(row_buffer.data()),
                                        static_cast<RankedLogit*>(entry_buffer.data())}));
    VN_EXPECT_OK(backend_->copy_to_host(result.rows.data(), row_buffer.data(), row_bytes));
    VN_EXPECT_OK(backend_->copy_to_host(result.entries.data(), entry_buffer.data(), entry_bytes));
    return result;
  }

  /// Compares with a sort. `may_be_short`: so many logits are alike that a device may have ordered one only.
  void check(std::int64_t rows, std::int64_t ids, const std::vector<float>& logits, const std::vector<RankWish>& wishes,
             std::int32_t count, bool may_be_short = false) {
    const Result result = rank(rows, ids, logits, wishes, count);
    for (std::int64_t r = 0; r < rows; ++r) {
      SCOPED_TRACE(testing::Message() << "row " << r << " of " << rows << ", " << ids << " ids, count " << count);
      const float* row = logits.data() + r * ids;
      std::vector<RankedLogit> all;
      for (std::int64_t i = 0; i < ids; ++i) all.push_back({static_cast<std::int32_t>(i), row[i]});
      std::sort(all.begin(), all.end(), likelier);
      const RankedRow& ranked = result.rows[static_cast<std::size_t>(r)];
      ASSERT_EQ(ranked.is_finite, 1);
      const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(count, ids));
      ASSERT_LE(ranked.num_entries, most);
      ASSERT_GE(ranked.num_entries, may_be_short ? 1 : most);
      for (std::int32_t i = 0; i < ranked.num_entries; ++i) {
        const RankedLogit& entry = result.entries[static_cast<std::size_t>(r * count + i)];
        ASSERT_EQ(entry.id, all[static_cast<std::size_t>(i)].id) << "place " << i;
        ASSERT_EQ(entry.logit, all[static_cast<std::size_t>(i)].logit);
      }
      const RankWish& wish = wishes[static_cast<std::size_t>(r)];
      std::uint64_t draw = 0;
      std::uint64_t unit = 0;
      for (const RankedLogit& token : all) {
        if (wish.inverse_temperature > 0.0) draw += odds_of(token.logit, all[0].logit, wish.inverse_temperature);
        if (wish.unit_odds) unit += odds_of(token.logit, all[0].logit, 1.0);
      }
      ASSERT_EQ(ranked.draw_odds, draw);
      ASSERT_EQ(ranked.unit_odds, unit);
    }
  }

  static std::vector<RankWish> wishes_for(std::int64_t rows) {
    const RankWish kinds[] = {{}, {1.0 / 0.8, false}, {1.0, true}, {1.0 / 3.0, true}, {0.0, true}};
    std::vector<RankWish> wishes;
    for (std::int64_t r = 0; r < rows; ++r) wishes.push_back(kinds[r % std::ssize(kinds)]);
    return wishes;
  }
};

TEST_P(RankConformance, IsASortWithSums) {
  Random random(1);
  for (const std::int64_t ids : {1, 31, 63, 64, 65, 1000, 1024, 8192, 8193, 40001}) {
    for (const std::int64_t rows : {0, 1, 2, 9}) {
      if (is_under_racecheck() && rows != 2) continue;
      const std::vector<float> logits = random.floats(rows * ids, 20.0F);
      for (const std::int32_t count : {1, 20, 256}) check(rows, ids, logits, wishes_for(rows), count);
    }
  }
}

TEST_P(RankConformance, WholeVocabularies) {
  Random random(2);
  for (const std::int64_t ids : {151936, 262144, 270001}) {
    check(2, ids, random.floats(2 * ids, 20.0F), {{1.0, true}, {1.0 / 0.6, true}}, 256);
  }
}

TEST_P(RankConformance, TiesGoToTheLowerId) {
  constexpr std::int64_t kIds = 5000;
  Random random(3);
  std::vector<float> logits = random.floats(2 * kIds, 1.0F);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = i < kIds ? std::round(logits[i] * 20.0F) : (i % 3 == 0 ? 0.0F : i % 3 == 1 ? -0.0F : -1.0F);
  }
  check(2, kIds, logits, wishes_for(2), 256, true);
  if (!is_under_racecheck()) check(2, kIds, logits, wishes_for(2), 1, true);
  check(1, 300, std::vector<float>(300, -7.0F), wishes_for(1), 256);
}

/// The likely ones in as few places as can be: what a device looks at in groups fits in none.
TEST_P(RankConformance, ClusteredLogits) {
  constexpr std::int64_t kIds = 100000;
  Random random(4);
  std::vector<float> logits = random.floats(kIds, 1.0F);
  for (std::size_t i = 30000; i < 31500; ++i) logits[i] += 10.0F;
  check(1, kIds, logits, {{1.0, true}}, 256);
}

TEST_P(RankConformance, WhatIsNotFiniteIsFound) {
  Random random(5);
  for (const std::int64_t ids : {1, 64, 9000}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> logits = random.floats(3 * ids, 5.0F);
      logits[static_cast<std::size_t>(2 * ids - 1)] = bad;
      const Result result = rank(3, ids, logits, wishes_for(3), 20);
      EXPECT_EQ(result.rows[0].is_finite, 1);
      EXPECT_EQ(result.rows[1].is_finite, 0) << bad;
      EXPECT_EQ(result.rows[2].is_finite, 1);
    }
  }
}

TEST_P(RankConformance, ExtremesOfFloat) {
  constexpr float kMost = std::numeric_limits<float>::max();
  check(1, 6, {-kMost, kMost, 0.0F, -0.0F, std::numeric_limits<float>::denorm_min(), -kMost}, {{0.01, true}}, 6);
  check(1, 3, {-kMost, -kMost, -kMost}, {{1.0, true}}, 3);
}

INSTANTIATE_TEST_SUITE_P(All, RankConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
