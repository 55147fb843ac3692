// Files of log-probabilities: what comes back, and that damaged ones are refused instead of believed.
#include "cli/logit_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "cli/logit_stats.h"
#include "support/bytes.h"
#include "support/expect_error.h"

namespace vernier::cli {
namespace {

constexpr std::uint32_t kVocab = 37;
constexpr std::uint32_t kWindow = 8;
constexpr std::uint32_t kFirst = 4;
constexpr std::uint32_t kWindows = 2;

class LogitFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("logit_file_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.0F, 4.0F);
    for (std::uint32_t i = 0; i < kWindows * (kWindow - 1 - kFirst); ++i) {
      std::vector<float> logits(kVocab);
      for (float& logit : logits) logit = normal(random);
      rows_.push_back(log_softmax(logits));
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path path() const { return folder_ / "base.vnl"; }
  static std::vector<std::int32_t> ids(std::uint32_t window) {
    std::vector<std::int32_t> ids;
    for (std::uint32_t i = 0; i < kWindow; ++i)
      ids.push_back(static_cast<std::int32_t>((window * 11 + i * 5) % kVocab));
    return ids;
  }

  /// Writes `whole` windows, and `rows` rows of another when that isn't 0.
  [[nodiscard]] Status write(std::uint32_t whole, std::uint32_t rows = 0) const {
    VN_ASSIGN(LogitWriter writer, LogitWriter::create(path(), {kVocab, kWindow, kFirst, 0, 77, "a model"}));
    std::size_t at = 0;
    for (std::uint32_t window = 0; window <= whole; ++window) {
      const std::uint32_t count = window < whole ? kWindow - 1 - kFirst : rows;
      if (window == whole && rows == 0) break;
      VN_TRY(writer.begin_window(ids(window)));
      for (std::uint32_t row = 0; row < count; ++row) {
        VN_TRY(writer.add_row(rows_[at++], ids(window)[kFirst + row + 1]));
      }
    }
    return writer.finish(whole);
  }

  /// Opens a damaged copy and reads everything in it; true when all of it was accepted.
  static bool reads(std::string_view bytes) {
    const auto file = LogitFile::open(test::as_file(bytes, "damaged.vnl"));
    if (!file) {
      EXPECT_LT(file.error().message.size(), 400U);
      return false;
    }
    for (std::uint32_t window = 0; window < file->header().num_windows; ++window) {
      for (std::uint32_t row = 0; row < file->header().rows_a_window(); ++row) {
        if (!file->row(window, row)) return false;
      }
    }
    return true;
  }

  std::filesystem::path folder_;
  std::vector<std::vector<double>> rows_;
};

TEST_F(LogitFiles, ComeBackWithinHalfAStep) {
  ASSERT_TRUE(write(kWindows));
  const auto file = LogitFile::open(*MappedFile::open(path()));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->header().model, "a model");
  EXPECT_EQ(file->header().vocabulary, 77U);
  std::size_t at = 0;
  for (std::uint32_t window = 0; window < kWindows; ++window) {
    EXPECT_EQ(file->ids(window), ids(window));
    for (std::uint32_t i = 0; i < file->header().rows_a_window(); ++i, ++at) {
      const auto row = file->row(window, i);
      ASSERT_TRUE(row) << row.error().message;
      const std::vector<double>& expected = rows_[at];
      EXPECT_NEAR(row->next, expected[static_cast<std::size_t>(ids(window)[kFirst + i + 1])], 1e-5);
      for (std::size_t j = 0; j < kVocab; ++j) EXPECT_NEAR(row->log_probs[j], expected[j], 64.0 / 65535.0);
      EXPECT_LT(divergence(expected, row->log_probs), 1e-7);
    }
  }
}

TEST_F(LogitFiles, VeryUnlikelyTokensDontCoarsenTheOthers) {
  rows_[0][3] = -1e30;
  ASSERT_TRUE(write(kWindows));
  const auto row = LogitFile::open(*MappedFile::open(path()))->row(0, 0);
  ASSERT_TRUE(row);
  EXPECT_LT(row->log_probs[3], -60.0);
  EXPECT_NEAR(row->log_probs[4], rows_[0][4], 0.1);  // without token 3 the rest isn't normalised any more
}

TEST_F(LogitFiles, AWindowThatWasntEndedIsCutOff) {
  ASSERT_TRUE(write(1, 2));
  const auto file = LogitFile::open(*MappedFile::open(path()));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->header().num_windows, 1U);
}

TEST_F(LogitFiles, NothingIsLeftOfAFileThatWasntFinished) {
  { ASSERT_TRUE(LogitWriter::create(path(), {kVocab, kWindow, kFirst, 0, 77, "a model"})); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_TRUE(
      test::fails_with(LogitWriter::create("/no/such/folder/x", {}), {"/no/such/folder/x", "cannot be written"}));
}

TEST_F(LogitFiles, CutFilesAreRefused) {
  ASSERT_TRUE(write(kWindows));
  const std::string whole = test::load(path().string());
  ASSERT_TRUE(reads(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(reads(whole.substr(0, size))) << size;
  EXPECT_FALSE(reads(whole + "x"));
}

TEST_F(LogitFiles, DamagedBytesNeverDoHarm) {
  ASSERT_TRUE(write(kWindows));
  const std::string whole = test::load(path().string());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned mask : {0x01U, 0x80U, 0xffU}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ mask);
      (void)reads(damaged);
    }
  }
}

TEST_F(LogitFiles, MessagesNameWhatIsWrong) {
  ASSERT_TRUE(write(kWindows));
  const std::string whole = test::load(path().string());
  const auto with = [&](std::size_t at, std::uint32_t value) {
    std::string changed = whole;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return LogitFile::open(test::as_file(changed, "base.vnl"));
  };
  EXPECT_TRUE(test::fails_with(with(0, 0), {"base.vnl", "VNLOGITS"}));
  EXPECT_TRUE(test::fails_with(with(8, 9), {"version 9", "reads 1"}));
  EXPECT_TRUE(test::fails_with(with(12, 0), {"vocab_size"}));
  EXPECT_TRUE(test::fails_with(with(12, 0x7fffffff), {"bytes, the file has"}));
  EXPECT_TRUE(test::fails_with(with(16, 0xffffffff), {"window of 4294967295"}));
  EXPECT_TRUE(test::fails_with(with(20, 7), {"token 7"}));
  EXPECT_TRUE(test::fails_with(with(24, 0), {"num_windows"}));
  EXPECT_TRUE(test::fails_with(with(24, 0xffffffff), {"4294967295 windows"}));
  EXPECT_TRUE(test::fails_with(with(28, 0xffffffff), {"name"}));
  EXPECT_TRUE(test::fails_with(with(40 + 7, kVocab), {"window 0", "0..36", "37"}));
}

}  // namespace
}  // namespace vernier::cli
