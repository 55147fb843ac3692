#include "cli/logit_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/checked_math.h"
#include "checkpoint/byte_reader.h"

namespace vernier::cli {
namespace {

constexpr char kMagic[8] = {'V', 'N', 'L', 'O', 'G', 'I', 'T', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxNameBytes = 4096;
constexpr double kLargestCode = 65535.0;
/// Less likely than this (in nats below the likeliest) is stored as this: a probability of 1e-28.
constexpr double kLargestRange = 64.0;
/// In front of a row's codes: largest log-probability, step, log-probability of the token that follows (F32 each).
constexpr std::size_t kRowHead = 3 * sizeof(float);

std::optional<std::uint64_t> window_bytes(const LogitHeader& header) {
  const CheckedU64 row = CheckedU64(header.vocab_size) * sizeof(std::uint16_t) + kRowHead;
  return (row * header.rows_a_window() + CheckedU64(header.window) * sizeof(std::int32_t)).value();
}

Result<LogitHeader> read_header(ByteReader& reader) {
  VN_ASSIGN(const auto magic, reader.take(sizeof kMagic, "the magic"));
  if (std::memcmp(magic.data(), kMagic, sizeof kMagic) != 0) {
    return fail(ErrorCode::kCorrupt, "not a file of 'perplexity --save-logits': it doesn't begin with VNLOGITS");
  }
  VN_ASSIGN(const auto version, reader.read<std::uint32_t>("the version"));
  if (version != kVersion) {
    return fail(ErrorCode::kUnsupported, "version {} of the format, this program reads {}", version, kVersion);
  }
  LogitHeader header;
  VN_ASSIGN(header.vocab_size, reader.read<std::uint32_t>("vocab_size"));
  VN_ASSIGN(header.window, reader.read<std::uint32_t>("window"));
  VN_ASSIGN(header.first, reader.read<std::uint32_t>("first"));
  VN_ASSIGN(header.num_windows, reader.read<std::uint32_t>("num_windows"));
  VN_ASSIGN(const auto name_bytes, reader.read<std::uint32_t>("the length of the model's name"));
  VN_ASSIGN(header.vocabulary, reader.read<std::uint64_t>("the vocabulary's hash"));
  constexpr auto kLargest = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  if (header.vocab_size == 0 || header.vocab_size > kLargest) {
    return fail(ErrorCode::kCorrupt, "vocab_size must be in 1..{}, found {}", kLargest, header.vocab_size);
  }
  if (header.window < 2 || header.window > kLargest || header.first > header.window - 2) {
    return fail(ErrorCode::kCorrupt, "a window of {} tokens can't be scored from token {} on", header.window,
                header.first);
  }
  if (header.num_windows == 0) return fail(ErrorCode::kCorrupt, "num_windows must be at least 1, found 0");
  if (name_bytes > kMaxNameBytes) {
    return fail(ErrorCode::kCorrupt, "the model's name may have {} bytes, found {}", kMaxNameBytes, name_bytes);
  }
  VN_ASSIGN(const auto name, reader.take(name_bytes, "the model's name"));
  header.model.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return header;
}

}  // namespace

// --- writing ---------------------------------------------------------------------------------------------------------

Result<LogitWriter> LogitWriter::create(const std::filesystem::path& path, LogitHeader header) {
  header.model.resize(std::min<std::size_t>(header.model.size(), kMaxNameBytes));
  LogitWriter writer(path, std::move(header), File(nullptr, std::fclose));
  writer.file_.reset(std::fopen(writer.part_path().c_str(), "wb"));
  if (writer.file_ == nullptr) {
    return fail(ErrorCode::kIo, "{}: cannot be written: {}", escape(path.string()), std::strerror(errno));
  }
  VN_TRY(writer.write_header());
  return writer;
}

LogitWriter::~LogitWriter() {
  if (file_ == nullptr) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(part_path(), ignored);
}

std::filesystem::path LogitWriter::part_path() const {
  std::filesystem::path path = path_;
  return path += ".part";
}

Status LogitWriter::write(const void* data, std::size_t size) {
  if (std::fwrite(data, 1, size, file_.get()) == size) return {};
  return fail(ErrorCode::kIo, "{}: cannot be written: {}", escape(path_.string()), std::strerror(errno));
}

Status LogitWriter::write_header() {
  const auto name_bytes = static_cast<std::uint32_t>(header_.model.size());
  const std::uint32_t numbers[] = {kVersion,      header_.vocab_size,  header_.window,
                                   header_.first, header_.num_windows, name_bytes};
  VN_TRY(write(kMagic, sizeof kMagic));
  VN_TRY(write(numbers, sizeof numbers));
  VN_TRY(write(&header_.vocabulary, sizeof header_.vocabulary));
  return write(header_.model.data(), header_.model.size());
}

Status LogitWriter::begin_window(std::span<const std::int32_t> ids) { return write(ids.data(), ids.size_bytes()); }

Status LogitWriter::add_row(std::span<const double> log_probs, std::int32_t next) {
  const auto [low, high] = std::minmax_element(log_probs.begin(), log_probs.end());
  const auto top = static_cast<float>(*high);
  const auto step = static_cast<float>(std::min(*high - *low, kLargestRange) / kLargestCode);
  const float head[] = {top, step, static_cast<float>(log_probs[static_cast<std::size_t>(next)])};
  row_.resize(kRowHead + log_probs.size() * sizeof(std::uint16_t));
  std::memcpy(row_.data(), head, kRowHead);
  std::byte* out = row_.data() + kRowHead;
  for (const double log_prob : log_probs) {
    const double steps = step > 0.0F ? (*high - log_prob) / static_cast<double>(step) : 0.0;
    const auto code = static_cast<std::uint16_t>(std::clamp(std::nearbyint(steps), 0.0, kLargestCode));
    std::memcpy(out, &code, sizeof code);
    out += sizeof code;
  }
  return write(row_.data(), row_.size());
}

Status LogitWriter::finish(std::uint32_t num_windows) {
  header_.num_windows = num_windows;
  const auto bytes = window_bytes(header_);
  const bool rewound = std::fseek(file_.get(), 0, SEEK_SET) == 0;
  if (!rewound || !bytes) return fail(ErrorCode::kIo, "{}: cannot be written", escape(path_.string()));
  VN_TRY(write_header());
  if (std::fclose(file_.release()) != 0) {
    return fail(ErrorCode::kIo, "{}: cannot be written: {}", escape(path_.string()), std::strerror(errno));
  }
  // A window that was begun and not ended is cut off.
  const std::uint64_t header_bytes =
      sizeof kMagic + 6 * sizeof(std::uint32_t) + sizeof(std::uint64_t) + header_.model.size();
  std::error_code error;
  std::filesystem::resize_file(part_path(), header_bytes + *bytes * num_windows, error);
  if (!error) std::filesystem::rename(part_path(), path_, error);
  if (error) return fail(ErrorCode::kIo, "{}: cannot be written: {}", escape(path_.string()), error.message());
  return {};
}

// --- reading ---------------------------------------------------------------------------------------------------------

Result<LogitFile> LogitFile::open(std::shared_ptr<const MappedFile> file) {
  LogitFile result;
  result.file_ = std::move(file);
  const std::string& name = result.file_->name();
  VN_ASSIGN(const auto bytes, result.file_->bytes({0, result.file_->size()}));
  ByteReader reader(bytes);
  auto header = read_header(reader);
  if (!header) return tl::unexpected(with_context(std::move(header).error(), name));
  result.header_ = std::move(*header);
  const auto a_window = window_bytes(result.header_);
  const auto wanted = a_window ? (CheckedU64(*a_window) * result.header_.num_windows).value() : std::nullopt;
  if (!wanted || *wanted != reader.remaining()) {
    return fail(ErrorCode::kCorrupt,
                "{}: {} windows of {} tokens over {} log-probabilities take {} bytes, the file has {}", name,
                result.header_.num_windows, result.header_.window, result.header_.vocab_size,
                wanted ? std::to_string(*wanted) : "more than 2^64", reader.remaining());
  }
  result.windows_ = bytes.subspan(reader.position());
  for (std::uint32_t window = 0; window < result.header_.num_windows; ++window) {
    for (const std::int32_t id : result.ids(window)) {
      if (id >= 0 && static_cast<std::uint32_t>(id) < result.header_.vocab_size) continue;
      return fail(ErrorCode::kCorrupt, "{}: window {}: ids must be in 0..{}, found {}", name, window,
                  result.header_.vocab_size - 1, id);
    }
  }
  return result;
}

const std::byte* LogitFile::window_data(std::uint32_t window) const {
  return windows_.data() + window * (windows_.size() / header_.num_windows);
}

std::vector<std::int32_t> LogitFile::ids(std::uint32_t window) const {
  std::vector<std::int32_t> ids(header_.window);
  std::memcpy(ids.data(), window_data(window), ids.size() * sizeof(std::int32_t));
  return ids;
}

Result<LogitFile::Row> LogitFile::row(std::uint32_t window, std::uint32_t row) const {
  const std::size_t row_bytes = kRowHead + std::size_t{header_.vocab_size} * sizeof(std::uint16_t);
  const std::byte* at = window_data(window) + std::size_t{header_.window} * sizeof(std::int32_t) + row * row_bytes;
  float head[3];
  std::memcpy(head, at, kRowHead);
  const auto is_log_prob = [](float value) { return std::isfinite(value) && value <= 1e-3F; };
  if (!is_log_prob(head[0]) || !is_log_prob(head[2]) || !std::isfinite(head[1]) || head[1] < 0.0F) {
    return fail(ErrorCode::kCorrupt, "{}: window {}: row {} begins with {}, {}, {}, which are no log-probabilities",
                name(), window, row, head[0], head[1], head[2]);
  }
  Row result;
  result.next = static_cast<double>(head[2]);
  result.log_probs.resize(header_.vocab_size);
  double sum = 0.0;
  at += kRowHead;
  for (double& log_prob : result.log_probs) {
    std::uint16_t code = 0;
    std::memcpy(&code, at, sizeof code);
    at += sizeof code;
    log_prob = static_cast<double>(head[0]) - static_cast<double>(head[1]) * code;
    sum += std::exp(log_prob);
  }
  if (!(sum > 0.5 && sum < 2.0)) {
    return fail(ErrorCode::kCorrupt, "{}: window {}: the probabilities of row {} add up to {}", name(), window, row,
                sum);
  }
  const double log_sum = std::log(sum);
  for (double& log_prob : result.log_probs) log_prob -= log_sum;
  if (file_->failed()) return fail(ErrorCode::kIo, "{}: the file was truncated while in use", name());
  return result;
}

}  // namespace vernier::cli
