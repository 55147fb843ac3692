// Quantised weights of GGUF files: blocks with their scales inside, and for some formats a second-level scale beside.
#include "checkpoint/quant_dialect.h"
#include "format/format_list.h"

namespace vernier {
namespace {

std::vector<std::uint64_t> extents(const MatrixShape& shape) {
  if (shape.experts == 0) return {shape.rows, shape.cols};
  return {shape.experts, shape.rows, shape.cols};
}

bool has_shape(const TensorRecord& record, const MatrixShape& shape) {
  // A matrix of one row may have been written without that dimension.
  if (shape.experts == 0 && shape.rows == 1 && record.shape.size() == 1) return record.shape[0] == shape.cols;
  return record.shape == extents(shape);
}

Status add_sidecar(StoredMatrix& matrix, std::uint32_t scale, const DialectContext& context) {
  const TensorRecord& codes = context.records[matrix.codes];
  const TensorRecord& record = context.records[scale];
  if (!takes_sidecar(codes)) {
    return fail(ErrorCode::kCorrupt, "{} is a second-level scale, but '{}' is {}, which has none", label(record),
                escape(codes.name), codes.type_name);
  }
  if (record.dtype != DType::kF32) {
    return fail(ErrorCode::kCorrupt, "{} is {}, expected F32", label(record), record.type_name);
  }
  const std::uint64_t experts = matrix.shape.experts;
  const bool is_one = experts == 0 && record.num_elements() == 1 && record.shape.size() <= 1;
  const bool is_list = experts > 0 && record.shape == std::vector<std::uint64_t>{experts};
  if (!is_one && !is_list) {
    return fail(ErrorCode::kCorrupt, "{} is {}, expected [{}]: one value{}", label(record), shape_text(record.shape),
                experts == 0 ? 1 : experts, experts == 0 ? "" : " an expert");
  }
  matrix.outer = scale;
  matrix.outer_spread = is_one ? OuterSpread::kOne : OuterSpread::kPerExpert;
  return {};
}

}  // namespace

Result<StoredMatrix> recognise_gguf(const TensorParts& parts, const MatrixShape& expected,
                                    const DialectContext& context) {
  StoredMatrix matrix;
  matrix.codes = codes_of(parts);
  matrix.shape = expected;
  const TensorRecord& record = context.records[matrix.codes];
  const auto format = record.ggml_type ? find_gguf_type(*record.ggml_type) : std::nullopt;
  if (!format) {
    return fail(ErrorCode::kUnsupported, "{} is of type {}, which Vernier doesn't run", label(record),
                record.type_name);
  }
  if (!has_shape(record, expected)) {
    return fail(ErrorCode::kCorrupt, "{} ({}) is {}, expected {}", label(record), record.type_name,
                shape_text(record.shape), shape_text(extents(expected)));
  }
  const FormatInfo& info = format_info(*format);
  matrix.format = *format;
  matrix.layout = info.has_interleaved ? WeightLayout::kInterleaved : WeightLayout::kPlain;
  if (expected.cols % static_cast<std::uint64_t>(info.cols_multiple(matrix.layout)) != 0) {
    return fail(ErrorCode::kCorrupt, "{} has rows of {} values, expected a multiple of {} for {}", label(record),
                expected.cols, info.cols_multiple(matrix.layout), info.name);
  }
  if (parts.has(TensorPart::kSidecar) && parts.has(TensorPart::kWeightSidecar)) {
    return fail(ErrorCode::kCorrupt, "{} and '{}' spell the same second-level scale; expected one of them",
                label(context.records[parts[TensorPart::kSidecar]]),
                escape(context.records[parts[TensorPart::kWeightSidecar]].name));
  }
  for (const TensorPart part : {TensorPart::kSidecar, TensorPart::kWeightSidecar}) {
    if (parts.has(part)) VN_TRY(add_sidecar(matrix, parts[part], context));
  }
  return matrix;
}

}  // namespace vernier
