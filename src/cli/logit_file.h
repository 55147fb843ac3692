// Log-probabilities of a base model over a text: what `perplexity --save-logits` writes and `--kl-against` reads. The
// format is described in docs/perplexity.md. A file is untrusted input.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace vernier::cli {

/// A text is cut into windows of `window` tokens; the tokens from `first` + 1 on are predicted by rows from `first` on.
struct LogitHeader {
  std::uint32_t vocab_size = 0;
  std::uint32_t window = 0;
  std::uint32_t first = 0;
  std::uint32_t num_windows = 0;
  std::uint64_t vocabulary = 0;  ///< hash of the token texts; 0: the model has no tokenizer
  std::string model;             ///< for people: name and precision

  [[nodiscard]] std::uint32_t rows_a_window() const { return window - 1 - first; }
};

/// Writes windows one after another to a file beside `path`, which takes its place in finish().
class LogitWriter {
 public:
  [[nodiscard]] static Result<LogitWriter> create(const std::filesystem::path& path, LogitHeader header);
  LogitWriter(LogitWriter&&) = default;
  LogitWriter& operator=(LogitWriter&&) = default;
  /// Removes what finish() hasn't put in place.
  ~LogitWriter();

  /// Begins a window: its header().window token ids.
  [[nodiscard]] Status begin_window(std::span<const std::int32_t> ids);
  /// A row of the window: log-probabilities [vocab_size] of the token `next` that follows, and of all others.
  [[nodiscard]] Status add_row(std::span<const double> log_probs, std::int32_t next);
  /// Writes the number of windows that are whole and gives the file its name.
  [[nodiscard]] Status finish(std::uint32_t num_windows);

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  LogitWriter(std::filesystem::path path, LogitHeader header, File file)
      : path_(std::move(path)), header_(std::move(header)), file_(std::move(file)) {}
  [[nodiscard]] std::filesystem::path part_path() const;
  [[nodiscard]] Status write(const void* data, std::size_t size);
  [[nodiscard]] Status write_header();

  std::filesystem::path path_;
  LogitHeader header_;
  File file_;
  std::vector<std::byte> row_;
};

/// A file of log-probabilities, mapped. open() has checked that header and size agree and that all ids are in range.
class LogitFile {
 public:
  [[nodiscard]] static Result<LogitFile> open(std::shared_ptr<const MappedFile> file);

  [[nodiscard]] const LogitHeader& header() const { return header_; }
  [[nodiscard]] const std::string& name() const { return file_->name(); }
  [[nodiscard]] std::vector<std::int32_t> ids(std::uint32_t window) const;

  struct Row {
    double next = 0.0;              ///< log-probability of the token that follows
    std::vector<double> log_probs;  ///< [vocab_size], normalised
  };
  /// kCorrupt when the row holds what no probabilities are.
  [[nodiscard]] Result<Row> row(std::uint32_t window, std::uint32_t row) const;

 private:
  [[nodiscard]] const std::byte* window_data(std::uint32_t window) const;

  std::shared_ptr<const MappedFile> file_;
  LogitHeader header_;
  std::span<const std::byte> windows_;
};

}  // namespace vernier::cli
