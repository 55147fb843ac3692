// Views of stored weights: one expert, or a half or every other row of a fused tensor. Nothing is copied but vectors
// and second-level scales. Shapes were checked against the headers when the weight was recognised.
#include <algorithm>
#include <cstring>

#include "checkpoint/resolved.h"
#include "format/format_list.h"
#include "format/scalar_codecs.h"
#include "format/validate.h"

namespace vernier {
namespace {

/// Where a slice's rows lie in the stored rows: row r of the slice is stored row first + r * step.
struct RowRun {
  std::uint64_t rows = 0;
  std::uint64_t first = 0;
  std::uint64_t step = 1;
};

RowRun run_of(StoredAs slice, std::uint64_t stored_rows) {
  switch (slice) {
    case StoredAs::kFirstHalf: return {stored_rows / 2, 0, 1};
    case StoredAs::kSecondHalf: return {stored_rows / 2, stored_rows / 2, 1};
    case StoredAs::kEvenRows: return {stored_rows / 2, 0, 2};
    case StoredAs::kOddRows: return {stored_rows / 2, 1, 2};
    default: return {stored_rows, 0, 1};
  }
}

bool is_second(StoredAs slice) { return slice == StoredAs::kSecondHalf || slice == StoredAs::kOddRows; }

/// Points the view at its block scales: `scales` begins at the expert's first.
Status place_scales(Weight& view, const StoredMatrix& stored, const RowRun& run, const std::byte* scales) {
  const std::uint64_t columns = (stored.shape.cols + static_cast<std::uint64_t>(stored.scale_block_cols) - 1) /
                                static_cast<std::uint64_t>(stored.scale_block_cols);
  view.scale_dtype = stored.scale_dtype;
  view.scale_block_rows = stored.scale_block_rows;
  view.scale_block_cols = stored.scale_block_cols;
  view.scale_stride = static_cast<std::int64_t>(columns * (dtype_bits(stored.scale_dtype) / 8));
  view.scales = scales;
  if (run.step == 1) {
    view.first_row = static_cast<std::int64_t>(run.first);
    return {};
  }
  if (stored.scale_block_rows == 1) {
    view.scales += static_cast<std::int64_t>(run.first) * view.scale_stride;
    view.scale_stride *= static_cast<std::int64_t>(run.step);
    return {};
  }
  // Row first + 2r lies in grid row r / (block / 2), whichever of the two `first` is.
  view.scale_block_rows /= static_cast<std::int32_t>(run.step);
  return {};
}

std::size_t num_slots(OuterSpread spread, const MatrixShape& shape) {
  const std::uint64_t experts = std::max<std::uint64_t>(shape.experts, 1);
  switch (spread) {
    case OuterSpread::kNone: return 0;
    case OuterSpread::kOne: return 1;
    case OuterSpread::kPerExpert: return experts;
    case OuterSpread::kPerExpertHalf: return experts * 2;
    case OuterSpread::kPerRow: return experts * shape.rows;
  }
  return 0;
}

template <class Codec>
void expand(std::span<const std::byte> bytes, std::vector<float>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = Codec::decode(load_element<Codec>(bytes.data(), static_cast<std::int64_t>(i)));
  }
}

bool equal_samples(std::span<const std::byte> a, std::span<const std::byte> b, bool sampled) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kPages = 16;
  if (a.size() != b.size()) return false;
  if (!sampled || a.size() <= kPage * kPages) return std::memcmp(a.data(), b.data(), a.size()) == 0;
  const std::size_t step = (a.size() - kPage) / (kPages - 1);
  for (std::size_t i = 0; i < kPages; ++i) {
    if (std::memcmp(a.data() + i * step, b.data() + i * step, kPage) != 0) return false;
  }
  return true;
}

}  // namespace

Result<Weight> make_view(const StoredMatrix& stored, StoredAs slice, std::uint64_t expert,
                         std::span<const TensorRecord> records) {
  const TensorRecord& codes = records[stored.codes];
  VN_ASSIGN(const std::span<const std::byte> bytes, codes.bytes());
  const RowRun run = run_of(slice, stored.shape.rows);
  const auto row_bytes =
      format_info(stored.format).row_bytes(stored.layout, static_cast<std::int64_t>(stored.shape.cols));
  const std::uint64_t experts = std::max<std::uint64_t>(stored.shape.experts, 1);
  if (!row_bytes || bytes.size() != experts * stored.shape.rows * static_cast<std::uint64_t>(*row_bytes)) {
    return fail(ErrorCode::kCorrupt, "{} has {} bytes, which its shape doesn't explain", label(codes), bytes.size());
  }
  Weight view;
  view.format = stored.format;
  view.layout = stored.layout;
  view.rows = static_cast<std::int64_t>(run.rows);
  view.cols = static_cast<std::int64_t>(stored.shape.cols);
  const std::uint64_t first_row = expert * stored.shape.rows + run.first;
  view.codes = bytes.data() + first_row * static_cast<std::uint64_t>(*row_bytes);
  view.row_stride = *row_bytes * static_cast<std::int64_t>(run.step);
  view.owner = codes.file;
  if (stored.scales != kNoTensor) {
    const TensorRecord& scales = records[stored.scales];
    VN_ASSIGN(const std::span<const std::byte> grid, scales.bytes());
    const std::byte* origin = grid.data() + expert * (grid.size() / experts);
    VN_TRY(place_scales(view, stored, run, origin));
    // The scales may be in another file than the codes.
    if (scales.file != codes.file)
      view.owner = std::make_shared<std::pair<std::shared_ptr<const MappedFile>, std::shared_ptr<const MappedFile>>>(
          codes.file, scales.file);
  }
  VN_TRY(check_weight_shape(view, codes.name));
  return view;
}

Result<OuterScale> make_outer(const StoredMatrix& stored, StoredAs slice, std::uint64_t expert,
                              std::span<const TensorRecord> records) {
  OuterScale outer;
  if (stored.outer == kNoTensor) return outer;
  const TensorRecord& record = records[stored.outer];
  VN_ASSIGN(const std::vector<float> all, values_of(record));
  if (all.size() != num_slots(stored.outer_spread, stored.shape)) {
    return fail(ErrorCode::kInternal, "{} has {} values", label(record), all.size());
  }
  outer.divides = stored.outer_divides;
  switch (stored.outer_spread) {
    case OuterSpread::kNone: break;
    case OuterSpread::kOne: outer.values = {all[0]}; break;
    case OuterSpread::kPerExpert: outer.values = {all[expert]}; break;
    case OuterSpread::kPerExpertHalf: outer.values = {all[expert * 2 + (is_second(slice) ? 1 : 0)]}; break;
    case OuterSpread::kPerRow: {
      const RowRun run = run_of(slice, stored.shape.rows);
      outer.values.reserve(run.rows);
      const std::uint64_t first = expert * stored.shape.rows + run.first;
      for (std::uint64_t row = 0; row < run.rows; ++row) outer.values.push_back(all[first + row * run.step]);
      break;
    }
  }
  return outer;
}

Result<std::vector<float>> values_of(const TensorRecord& record) {
  VN_ASSIGN(const std::span<const std::byte> bytes, record.bytes());
  if (!record.dtype || !find_plain_format(*record.dtype)) {
    return fail(ErrorCode::kCorrupt, "{} is {}, expected F32, F16 or BF16", label(record), record.type_name);
  }
  const std::size_t width = dtype_bits(*record.dtype) / 8;
  std::vector<float> values(bytes.size() / width);
  if (*record.dtype == DType::kF32) expand<F32Codec>(bytes, values);
  if (*record.dtype == DType::kF16) expand<F16Codec>(bytes, values);
  if (*record.dtype == DType::kBF16) expand<BF16Codec>(bytes, values);
  return values;
}

Result<bool> same_bytes(const StoredMatrix& a, const StoredMatrix& b, std::span<const TensorRecord> records,
                        bool sampled) {
  if (a.format != b.format || a.layout != b.layout || a.outer_divides != b.outer_divides) return false;
  const std::uint32_t parts[][2] = {{a.codes, b.codes}, {a.scales, b.scales}, {a.outer, b.outer}};
  for (const auto& [left, right] : parts) {
    if ((left == kNoTensor) != (right == kNoTensor)) return false;
    if (left == kNoTensor) continue;
    VN_ASSIGN(const std::span<const std::byte> left_bytes, records[left].bytes());
    VN_ASSIGN(const std::span<const std::byte> right_bytes, records[right].bytes());
    if (!equal_samples(left_bytes, right_bytes, sampled)) return false;
  }
  return true;
}

}  // namespace vernier
