#include "checkpoint/gguf.h"

#include <algorithm>
#include <limits>

#include "base/checked_math.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/gguf_types.h"
#include "checkpoint/look_alike.h"
#include "checkpoint/name_check.h"

namespace vernier {

/// Reads one file: header, keys, tensor infos, then checks where the data lie.
class GgufReader {
 public:
  GgufReader(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes, const OpenOptions& options)
      : options_(options), bytes_(bytes), reader_(bytes) {
    result_.file_ = std::move(file);
  }

  Result<GgufFile> read() {
    VN_TRY(read_header());
    VN_ASSIGN(result_.metadata_, GgufMetadata::read(reader_, num_keys_, result_.file_, options_.limits));
    VN_TRY(read_alignment());
    constexpr std::uint64_t kSmallestInfo = 8 + 1 + 4 + 4 + 8;
    result_.tensors_.reserve(std::min(num_tensors_, reader_.remaining() / kSmallestInfo));
    for (std::uint64_t i = 0; i < num_tensors_; ++i) {
      auto record = read_tensor(i);
      if (!record) return tl::unexpected(with_context(std::move(record).error(), tensor_text(i)));
      result_.tensors_.push_back(*std::move(record));
    }
    name_.clear();
    VN_TRY(TensorIndex::build(result_.tensors_));
    VN_TRY(place_tensors());
    return std::move(result_);
  }

 private:
  /// How a message names the tensor that is being read: by name once that's known.
  [[nodiscard]] std::string tensor_text(std::uint64_t number) const {
    return name_.empty() ? fmt::format("tensor #{}", number) : fmt::format("tensor '{}'", escape(name_));
  }

  Status read_header() {
    constexpr std::uint64_t kHeaderBytes = 24;
    if (bytes_.empty()) return fail(ErrorCode::kCorrupt, "empty file");
    const std::string_view magic("GGUF");
    const std::string_view head(reinterpret_cast<const char*>(bytes_.data()), std::min<std::size_t>(bytes_.size(), 4));
    const bool is_prefix = head == magic.substr(0, head.size());
    if (head == "FUGG") return big_endian();
    if (!is_prefix) {
      if (auto error = look_alike_error("a GGUF file", bytes_)) return tl::unexpected(*std::move(error));
      return fail(ErrorCode::kCorrupt, "not a GGUF file: begins with '{}'", escape(head));
    }
    if (bytes_.size() < kHeaderBytes) {
      return fail(ErrorCode::kCorrupt, "too short for a header: {} of {} bytes", bytes_.size(), kHeaderBytes);
    }
    VN_TRY(reader_.take(magic.size(), "the magic"));
    VN_ASSIGN(result_.version_, reader_.read<std::uint32_t>("the version"));
    if ((result_.version_ & 0xFFFFU) == 0 && result_.version_ != 0) return big_endian();
    if (result_.version_ < 2 || result_.version_ > 3) {
      return fail(ErrorCode::kUnsupported, "GGUF version {}; supported 2-3", result_.version_);
    }
    VN_ASSIGN(num_tensors_, read_count("n_tensors", options_.limits.gguf_tensors));
    VN_ASSIGN(num_keys_, read_count("n_kv", options_.limits.gguf_keys));
    return {};
  }

  static tl::unexpected<Error> big_endian() {
    return fail_with_hint(ErrorCode::kUnsupported, "convert the original checkpoint on a little-endian machine",
                          "big-endian file not supported");
  }

  Result<std::uint64_t> read_count(std::string_view what, std::uint64_t limit) {
    VN_ASSIGN(const auto count, reader_.read<std::int64_t>(what));
    if (count < 0 || static_cast<std::uint64_t>(count) > limit) {
      return fail(ErrorCode::kCorrupt, "{} {} exceeds limit {}", what, count, limit);
    }
    return static_cast<std::uint64_t>(count);
  }

  Status read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    const GgufEntry* entry = result_.metadata_.find(kKey);
    if (entry == nullptr) return {};
    if (entry->type != GgufType::kU32) {
      return fail(ErrorCode::kCorrupt, "key '{}': expected uint32, found {}", kKey, entry->type_text());
    }
    VN_ASSIGN(const auto value, result_.metadata_.find_u64(kKey));
    result_.alignment_ = value.value_or(0);
    const bool good = std::has_single_bit(result_.alignment_) && result_.alignment_ >= 8;
    if (!good || result_.alignment_ > options_.limits.gguf_alignment) {
      return fail(ErrorCode::kCorrupt, "key '{}': expected a power of two from 8 to {}, found {}", kKey,
                  options_.limits.gguf_alignment, result_.alignment_);
    }
    return {};
  }

  Result<TensorRecord> read_tensor(std::uint64_t number) {
    TensorRecord record;
    name_.clear();
    VN_ASSIGN(const auto name_length, reader_.read<std::uint64_t>("the length of its name"));
    if (name_length > reader_.remaining()) {
      return fail(ErrorCode::kCorrupt, "name length {} exceeds remaining {} bytes (at byte {})", name_length,
                  reader_.remaining(), reader_.position());
    }
    VN_ASSIGN(const auto name, reader_.take(name_length, "its name"));
    const std::string_view name_text(reinterpret_cast<const char*>(name.data()), name.size());
    VN_TRY(check_tensor_name(name_text, options_.limits));
    name_ = name_text;
    record.name = name_text;
    VN_ASSIGN(record.shape, read_shape());
    VN_ASSIGN(const auto type_id, reader_.read<std::uint32_t>("its type"));
    VN_ASSIGN(const GgmlType* type, find_ggml_type(type_id));
    VN_ASSIGN(record.extent.size, size_of(record.shape, *type));
    VN_ASSIGN(record.extent.offset, reader_.read<std::uint64_t>("its offset"));
    record.type_name = type->name;
    record.dtype = type->dtype;
    record.ggml_type = type_id;
    record.file = result_.file_;
    VN_TRY(check_offset(record, number));
    return record;
  }

  /// The shape, outermost dimension first: the file has it the other way round.
  Result<std::vector<std::uint64_t>> read_shape() {
    VN_ASSIGN(const auto num_dims, reader_.read<std::uint32_t>("its number of dimensions"));
    if (num_dims > options_.limits.gguf_dims) {
      return fail(ErrorCode::kCorrupt, "has {} dimensions, at most {} are allowed", num_dims,
                  options_.limits.gguf_dims);
    }
    std::vector<std::uint64_t> shape(num_dims);
    for (std::uint32_t i = 0; i < num_dims; ++i) {
      VN_ASSIGN(const auto dim, reader_.read<std::int64_t>("a dimension"));
      if (dim < 0) return fail(ErrorCode::kCorrupt, "dimension {} is negative: {}", i, dim);
      if (dim == 0) return fail(ErrorCode::kCorrupt, "dimension {} is 0: a tensor may not be of zero size", i);
      shape[num_dims - 1 - i] = static_cast<std::uint64_t>(dim);
    }
    return shape;
  }

  static Result<std::uint64_t> size_of(std::span<const std::uint64_t> shape, const GgmlType& type) {
    CheckedU64 elements = 1;
    for (const std::uint64_t dim : shape) elements *= dim;
    // Also refuses sizes that would fit if divided by the block first: no file is so large, and whoever multiplies
    // first further down must be able to rely on it.
    const auto scaled = (elements * type.block_bytes).value();
    if (!scaled || *elements.value() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(ErrorCode::kCorrupt, "size of the tensor overflows 64 bits: {} of {}", shape_text(shape), type.name);
    }
    const std::uint64_t row = shape.empty() ? 1 : shape.back();
    if (row % type.block_values != 0) {
      return fail(ErrorCode::kCorrupt, "row length {} not multiple of {}, the block of {}", row, type.block_values,
                  type.name);
    }
    return *scaled / type.block_values;
  }

  /// Offsets must be the running sum of the aligned sizes, in the order of the file.
  Status check_offset(const TensorRecord& record, std::uint64_t number) {
    const std::uint64_t offset = record.extent.offset;
    if (offset % result_.alignment_ != 0) {
      return fail(ErrorCode::kCorrupt, "offset {} is not aligned to {}", offset, result_.alignment_);
    }
    if (offset < next_offset_) {
      return fail(ErrorCode::kCorrupt, "offset {} overlaps tensor #{}, whose data end at {}", offset, number - 1,
                  next_offset_);
    }
    if (offset > next_offset_) {
      return fail(ErrorCode::kCorrupt, "offset {} is not the running sum of the sizes before, {}", offset,
                  next_offset_);
    }
    const auto next = (CheckedU64(offset) + record.extent.size).align_up(result_.alignment_).value();
    if (!next) return fail(ErrorCode::kCorrupt, "size of the tensors up to this one overflows 64 bits");
    next_offset_ = *next;
    return {};
  }

  /// Turns offsets within the data into offsets within the file and holds them against its size.
  Status place_tensors() {
    const std::uint64_t header_end = reader_.position();
    const std::uint64_t alignment = result_.alignment_;
    const std::uint64_t data_start = *CheckedU64(header_end).align_up(alignment).value();
    const auto padded_end = (CheckedU64(data_start) + next_offset_).value();
    if (!padded_end) return fail(ErrorCode::kCorrupt, "size of the tensors overflows 64 bits");
    for (TensorRecord& record : result_.tensors_) {
      record.extent.offset += data_start;
      const std::uint64_t end = record.extent.offset + record.extent.size;
      if (end > bytes_.size()) {
        return fail(ErrorCode::kCorrupt, "tensor '{}': its data end at byte {}, the file has {} bytes: cut short?",
                    escape(record.name), end, bytes_.size());
      }
    }
    // The padding behind the last tensor may be missing, so anything up to its end is right.
    if (bytes_.size() <= *padded_end) return {};
    const std::string found =
        fmt::format("{} bytes of trailing garbage: the data end at byte {}, the file has {} bytes",
                    bytes_.size() - *padded_end, *padded_end, bytes_.size());
    if (!options_.lenient) return fail_with_hint(ErrorCode::kCorrupt, "--lenient ignores them", "{}", found);
    result_.warnings_.push_back(fmt::format("{}: {}", result_.file_->name(), found));
    return {};
  }

  const OpenOptions& options_;
  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile result_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_keys_ = 0;
  std::uint64_t next_offset_ = 0;
  std::string name_;  // of the tensor that is being read
};

Result<GgufFile> GgufFile::open(const std::filesystem::path& path, const OpenOptions& options) {
  VN_ASSIGN(auto file, MappedFile::open(path));
  return open(file, options);
}

Result<GgufFile> GgufFile::open(const std::shared_ptr<const MappedFile>& file, const OpenOptions& options) {
  VN_ASSIGN(const auto bytes, file->bytes({0, file->size()}));
  auto result = GgufReader(file, bytes, options).read();
  if (!result) return tl::unexpected(with_context(std::move(result).error(), file->name()));
  return result;
}

}  // namespace vernier
