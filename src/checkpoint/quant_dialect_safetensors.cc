// Quantised weights of safetensors files: arrays of codes with arrays of scales beside them. The dispatch is by dtype
// and shape; names only tell which tensors belong together and whether a second level multiplies or divides.
#include <algorithm>

#include "base/checked_math.h"
#include "checkpoint/quant_dialect.h"
#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

using Extents = std::vector<std::uint64_t>;

constexpr std::uint64_t kTile = 128;  // rows and columns under one scale of a grid

/// `rest` behind the experts' dimension, if there is one.
Extents with_experts(const MatrixShape& shape, Extents rest) {
  if (shape.experts > 0) rest.insert(rest.begin(), shape.experts);
  return rest;
}

bool is_eight_bit_exponent(const TensorRecord& record) {
  return record.dtype == DType::kU8 || record.dtype == DType::kF8E8M0;
}

/// Reads one weight. Members are what all rules need; each rule either completes `matrix_` or fails.
class Recogniser {
 public:
  Recogniser(const TensorParts& parts, const MatrixShape& expected, const DialectContext& context)
      : parts_(parts), shape_(expected), context_(context), codes_(context.records[codes_of(parts)]) {
    matrix_.codes = codes_of(parts);
    matrix_.shape = expected;
  }

  Result<StoredMatrix> run() {
    VN_TRY(check_spellings());
    VN_TRY(dispatch());
    return matrix_;
  }

 private:
  [[nodiscard]] const TensorRecord& record(TensorPart part) const { return context_.records[parts_[part]]; }

  Status check_spellings() const {
    if (parts_.has(TensorPart::kWeight) && parts_.has(TensorPart::kPacked)) {
      return fail(ErrorCode::kCorrupt, "{} and '{}' are both codes of one weight; expected one of them",
                  label(record(TensorPart::kWeight)), escape(record(TensorPart::kPacked).name));
    }
    if (parts_.twice != kNoTensor) {
      return fail(ErrorCode::kCorrupt, "{} is a second spelling of a scale that is there already",
                  label(context_.records[parts_.twice]));
    }
    return {};
  }

  Status dispatch() {
    if (parts_.has(TensorPart::kBlocks)) return read_fp4_codes();
    if (!codes_.dtype) return unsupported_dtype();
    switch (*codes_.dtype) {
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16: return read_plain();
      case DType::kF8E4M3: return read_fp8();
      case DType::kF8E5M2:
        return fail(ErrorCode::kUnsupported, "{} is F8_E5M2; FP8 weights are supported as F8_E4M3 only", label(codes_));
      case DType::kU8:
      case DType::kI8: return read_fp4_codes();
      default: return unsupported_dtype();
    }
  }

  [[nodiscard]] tl::unexpected<Error> unsupported_dtype() const {
    return fail(ErrorCode::kUnsupported, "{} is {} {}, expected BF16, F16, F32, F8_E4M3 or packed U8 codes",
                label(codes_), codes_.type_name, shape_text(codes_.shape));
  }

  Status check_codes_shape(const Extents& expected) const {
    const bool is_row = shape_.experts == 0 && shape_.rows == 1 && codes_.shape == Extents{expected.back()};
    if (is_row || codes_.shape == expected) return {};
    return fail(ErrorCode::kCorrupt, "{} ({}) is {}, expected {}", label(codes_), codes_.type_name,
                shape_text(codes_.shape), shape_text(expected));
  }

  /// Fails when a part is there that the codes can't have.
  Status refuse_parts(std::initializer_list<TensorPart> unwanted, std::string_view found_in) const {
    for (const TensorPart part : unwanted) {
      if (!parts_.has(part)) continue;
      return fail(ErrorCode::kCorrupt, "{} is a scale of '{}', but {} takes no such scale", label(record(part)),
                  escape(codes_.name), found_in);
    }
    return {};
  }

  Status read_plain() {
    VN_TRY(check_codes_shape(with_experts(shape_, {shape_.rows, shape_.cols})));
    VN_TRY(refuse_parts({TensorPart::kScale, TensorPart::kInverseScale, TensorPart::kBlockScales,
                         TensorPart::kMultiplier, TensorPart::kDivisor},
                        codes_.type_name));
    matrix_.format = *find_plain_format(*codes_.dtype);
    matrix_.layout = WeightLayout::kPlain;
    return {};
  }

  // --- FP8 ---

  Status read_fp8() {
    VN_TRY(check_codes_shape(with_experts(shape_, {shape_.rows, shape_.cols})));
    VN_TRY(refuse_parts({TensorPart::kBlockScales, TensorPart::kMultiplier, TensorPart::kDivisor}, "F8_E4M3"));
    const bool has_scale = parts_.has(TensorPart::kScale);
    const bool has_inverse = parts_.has(TensorPart::kInverseScale);
    if (has_scale && has_inverse) {
      return fail(ErrorCode::kCorrupt, "{} has two scales, '{}' {} and '{}' {}; expected one", label(codes_),
                  escape(record(TensorPart::kScale).name), shape_text(record(TensorPart::kScale).shape),
                  escape(record(TensorPart::kInverseScale).name), shape_text(record(TensorPart::kInverseScale).shape));
    }
    if (!has_scale && !has_inverse) {
      return fail(ErrorCode::kCorrupt, "{} is F8_E4M3, but its scale '{}.weight_scale{}' is missing", label(codes_),
                  escape(split_name(codes_.name).stem), context_.block_rows > 0 ? "_inv" : "");
    }
    const TensorPart part = has_scale ? TensorPart::kScale : TensorPart::kInverseScale;
    return read_fp8_scale(parts_[part], part);
  }

  Status read_fp8_scale(std::uint32_t index, TensorPart part) {
    const TensorRecord& scale = context_.records[index];
    const bool is_exponent = is_eight_bit_exponent(scale);
    const bool is_float = scale.dtype == DType::kF32 || scale.dtype == DType::kBF16 || scale.dtype == DType::kF16;
    if (!is_exponent && !is_float) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected F32 or BF16", label(scale), scale.type_name);
    }
    if (is_float && read_fp8_outer(index, part)) return {};
    const std::uint64_t group = static_cast<std::uint64_t>(scheme_group_size(Scheme::kMicroscaledFp4));
    if (is_exponent && scale.shape == with_experts(shape_, {shape_.rows, ceil_div(shape_.cols, group)}) &&
        shape_.cols > group) {
      return fail(ErrorCode::kUnsupported, "{} has an exponent for each {} values (MXFP8), which Vernier doesn't run",
                  label(scale), group);
    }
    return read_grid(index);
  }

  /// Row and tensor scales, which are second-level factors of plain codes. False when the shape is another.
  bool read_fp8_outer(std::uint32_t index, TensorPart part) {
    const TensorRecord& scale = context_.records[index];
    const Extents& found = scale.shape;
    const Extents one_row{shape_.rows};
    const Extents column{shape_.rows, 1};
    const bool one = found.empty() || found == Extents{1};
    const bool one_tile = shape_.rows <= kTile && shape_.cols <= kTile && part == TensorPart::kScale &&
                          context_.block_rows == 0 && found == with_experts(shape_, {1, 1});
    const bool by_expert =
        shape_.experts > 0 && (found == Extents{shape_.experts} || found == Extents{shape_.experts, 1});
    const bool by_row = found == with_experts(shape_, one_row) || found == with_experts(shape_, column);
    if (one || (one_tile && shape_.experts == 0)) {
      matrix_.outer_spread = OuterSpread::kOne;
    } else if (by_expert || one_tile) {
      matrix_.outer_spread = OuterSpread::kPerExpert;
    } else if (by_row && !(part == TensorPart::kInverseScale && grid_shape(kTile, kTile) == found)) {
      matrix_.outer_spread = OuterSpread::kPerRow;
    } else {
      return false;
    }
    matrix_.outer = index;
    matrix_.layout = WeightLayout::kPlain;
    matrix_.format =
        matrix_.outer_spread == OuterSpread::kPerRow ? kFormatIdOf<Fp8RowFormat> : kFormatIdOf<Fp8TensorFormat>;
    return true;
  }

  [[nodiscard]] Extents grid_shape(std::uint64_t tile_rows, std::uint64_t tile_cols) const {
    return with_experts(shape_, {ceil_div(shape_.rows, tile_rows), ceil_div(shape_.cols, tile_cols)});
  }

  Status read_grid(std::uint32_t index) {
    const TensorRecord& scale = context_.records[index];
    const std::uint64_t tile_rows = context_.block_rows > 0 ? static_cast<std::uint64_t>(context_.block_rows) : kTile;
    const std::uint64_t tile_cols = context_.block_cols > 0 ? static_cast<std::uint64_t>(context_.block_cols) : kTile;
    const Extents expected = grid_shape(tile_rows, tile_cols);
    Extents found = scale.shape;
    // ModelOpt writes [rows / 128, 1, columns / 128, 1].
    if (found.size() == expected.size() + 2 && found.back() == 1 && found[found.size() - 3] == 1) {
      found.pop_back();
      found.erase(found.end() - 2);
    }
    if (found != expected) return wrong_grid(scale, found, expected);
    if (tile_rows != kTile || tile_cols != kTile) {
      return fail(ErrorCode::kUnsupported, "{} is a grid of {} x {} blocks; {} x {} is supported", label(scale),
                  tile_rows, tile_cols, kTile, kTile);
    }
    const DType dtype = scale.dtype == DType::kU8 ? DType::kF8E8M0 : *scale.dtype;
    if (!is_grid_scale_dtype(dtype)) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected F32 or BF16 for a grid of block scales", label(scale),
                  scale.type_name);
    }
    matrix_.scale_block_rows = static_cast<std::int32_t>(tile_rows);
    matrix_.scale_block_cols = static_cast<std::int32_t>(tile_cols);
    set_separate(kFormatIdOf<Fp8BlockFormat>, index, dtype);
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> wrong_grid(const TensorRecord& scale, const Extents& found,
                                                 const Extents& expected) const {
    std::string note;
    Extents swapped = expected;
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    if (context_.block_rows > 0 && found == grid_shape(kTile, kTile)) {
      note = fmt::format("; the grid has blocks of {} x {}", kTile, kTile);
    } else if (found == swapped) {
      note = "; the grid is transposed";
    } else if (found == with_experts(shape_, {shape_.rows / kTile, shape_.cols / kTile})) {
      note = "; partial blocks at the edges need a scale, too";
    }
    const auto rows = context_.block_rows > 0 ? context_.block_rows : static_cast<std::int64_t>(kTile);
    const auto cols = context_.block_cols > 0 ? context_.block_cols : static_cast<std::int64_t>(kTile);
    const bool may_be_rows = parts_.has(TensorPart::kScale) && context_.block_rows == 0;
    const std::string others =
        may_be_rows ? shape_text(with_experts(shape_, {shape_.rows, 1})) + " or one value, or " : std::string();
    return fail(ErrorCode::kCorrupt, "{} is {}, expected {}{} for blocks of {} x {}{} of '{}' [{}, {}]{}", label(scale),
                shape_text(scale.shape), others, shape_text(expected), rows, cols,
                context_.block_rows > 0 ? " (weight_block_size)" : "", escape(codes_.name), shape_.rows, shape_.cols,
                note);
  }

  // --- four-bit codes, two a byte ---

  Status read_fp4_codes() {
    const bool is_split = parts_.has(TensorPart::kBlocks);
    const std::uint64_t group = static_cast<std::uint64_t>(scheme_group_size(Scheme::kMicroscaledFp4));
    if (shape_.cols % (is_split ? group : 2) != 0) {
      return fail(ErrorCode::kCorrupt, "{}: rows of {} values can't be packed in groups of {}", label(codes_),
                  shape_.cols, is_split ? group : 2);
    }
    if (is_split) {
      if (codes_.dtype != DType::kU8) {
        return fail(ErrorCode::kCorrupt, "{} is {}, expected U8", label(codes_), codes_.type_name);
      }
      VN_TRY(check_codes_shape(with_experts(shape_, {shape_.rows, shape_.cols / group, group / 2})));
    } else {
      VN_TRY(check_codes_shape(with_experts(shape_, {shape_.rows, shape_.cols / 2})));
    }
    VN_TRY(refuse_parts({TensorPart::kInverseScale}, "a tensor of 4-bit codes"));
    const TensorPart scale_part = is_split ? TensorPart::kBlockScales : TensorPart::kScale;
    VN_TRY(refuse_parts({is_split ? TensorPart::kScale : TensorPart::kBlockScales}, "a tensor of 4-bit codes"));
    if (!parts_.has(scale_part)) {
      return fail(ErrorCode::kCorrupt, "{} holds 4-bit codes, but its block scales '{}{}' are missing", label(codes_),
                  escape(split_name(codes_.name).stem), is_split ? "_scales" : ".weight_scale");
    }
    return read_fp4_scales(parts_[scale_part], is_split);
  }

  Status read_fp4_scales(std::uint32_t index, bool is_split) {
    const TensorRecord& scale = context_.records[index];
    const bool has_second = parts_.has(TensorPart::kMultiplier) || parts_.has(TensorPart::kDivisor);
    const bool is_two_level = scale.dtype == DType::kF8E4M3;
    if (is_split ? !is_eight_bit_exponent(scale) : !is_two_level && (has_second || !is_eight_bit_exponent(scale))) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected {}", label(scale), scale.type_name,
                  is_split     ? "U8 exponents"
                  : has_second ? "F8_E4M3"
                               : "F8_E4M3 (16 values a scale) or U8 exponents (32 values a scale)");
    }
    const Scheme scheme = is_two_level ? Scheme::kTwoLevelFp4 : Scheme::kMicroscaledFp4;
    const auto group = static_cast<std::uint64_t>(scheme_group_size(scheme));
    if (shape_.cols % group != 0) {
      return fail(ErrorCode::kCorrupt, "{}: rows of {} values, expected a multiple of {} for {}", label(codes_),
                  shape_.cols, group, scheme_name(scheme));
    }
    const Extents expected = with_experts(shape_, {shape_.rows, shape_.cols / group});
    if (scale.shape != expected) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected {} for groups of {} along the rows of '{}'{}", label(scale),
                  shape_text(scale.shape), shape_text(expected), group, escape(codes_.name),
                  scale.shape.size() == 1 && shape_.experts == 0 ? "; swizzled scales aren't read" : "");
    }
    matrix_.scale_block_cols = static_cast<std::int32_t>(group);
    const FormatId format = is_two_level ? kFormatIdOf<Nvfp4Format> : kFormatIdOf<Mxfp4Format>;
    set_separate(format, index, is_two_level ? DType::kF8E4M3 : DType::kF8E8M0);
    return is_two_level ? read_second_level() : Status{};
  }

  Status read_second_level() {
    const bool has_multiplier = parts_.has(TensorPart::kMultiplier);
    const bool has_divisor = parts_.has(TensorPart::kDivisor);
    if (has_multiplier && has_divisor) {
      return fail(ErrorCode::kCorrupt, "{} has two second-level scales, '{}' and '{}'; expected one", label(codes_),
                  escape(record(TensorPart::kMultiplier).name), escape(record(TensorPart::kDivisor).name));
    }
    if (!has_multiplier && !has_divisor) {
      // Some older files of the packed spelling have no global scale at all: then it is 1.
      const bool is_packed = parts_.has(TensorPart::kPacked);
      if (is_packed && !context_.has_divisors) return {};
      return fail(ErrorCode::kCorrupt, "{} needs a second-level scale, but '{}.{}' is missing", label(codes_),
                  escape(split_name(codes_.name).stem), is_packed ? "weight_global_scale" : "weight_scale_2");
    }
    const TensorPart part = has_multiplier ? TensorPart::kMultiplier : TensorPart::kDivisor;
    const TensorRecord& scale = record(part);
    if (scale.dtype != DType::kF32) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected F32", label(scale), scale.type_name);
    }
    const Extents& found = scale.shape;
    const std::uint64_t experts = shape_.experts;
    if (found.empty() || found == Extents{1}) {
      matrix_.outer_spread = OuterSpread::kOne;
    } else if (experts > 0 && (found == Extents{experts} || found == Extents{experts, 1})) {
      matrix_.outer_spread = OuterSpread::kPerExpert;
    } else if (experts > 0 && found == Extents{experts, 2}) {
      matrix_.outer_spread = OuterSpread::kPerExpertHalf;
    } else {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected {}", label(scale), shape_text(found),
                  experts == 0 ? std::string("one value") : fmt::format("[{}]: one value an expert", experts));
    }
    matrix_.outer = parts_[part];
    matrix_.outer_divides = has_divisor;
    return {};
  }

  void set_separate(FormatId format, std::uint32_t scales, DType dtype) {
    matrix_.format = format;
    matrix_.layout = WeightLayout::kSeparate;
    matrix_.scales = scales;
    matrix_.scale_dtype = dtype;
  }

  const TensorParts& parts_;
  const MatrixShape shape_;
  const DialectContext& context_;
  const TensorRecord& codes_;
  StoredMatrix matrix_;
};

}  // namespace

Result<StoredMatrix> recognise(const TensorParts& parts, const MatrixShape& expected, const DialectContext& context) {
  if (context.gguf) return recognise_gguf(parts, expected, context);
  return Recogniser(parts, expected, context).run();
}

}  // namespace vernier
