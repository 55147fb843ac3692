#include "bench/synthetic_layout.h"

#include <unordered_set>

#include "base/checked_math.h"
#include "format/format_list.h"

namespace vernier::bench {
namespace {

using Extents = std::vector<std::uint64_t>;

constexpr std::uint64_t kTile = 128;  // rows and columns under one scale of a grid

bool is_half(StoredAs slice) { return slice != StoredAs::kWhole && slice != StoredAs::kPerExpert; }

/// A format whose block scales are exponents and which has no second level: gpt-oss stores its experts in such a one.
bool has_exponent_scales(const FormatInfo& info) {
  return info.has_separate && !info.has_grid && info.scale_dtype == DType::kF8E8M0;
}

/// One matrix, or a bank of them stacked.
struct Matrix {
  std::string name;  ///< without a suffix
  std::uint64_t experts = 0;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  FormatId format{};

  [[nodiscard]] Extents extents(Extents rest) const {
    if (experts > 0) rest.insert(rest.begin(), experts);
    return rest;
  }
};

class Planner {
 public:
  explicit Planner(const StorageChoice& choice) : choice_(choice) {}

  Status add(const TensorSpec& spec) {
    // Required as a group only: the draft block. Optional: what files may leave out is left out.
    if (spec.mtp || !spec.required || spec.spellings.empty()) return {};
    if (spec.kind == TensorKind::kVector || spec.kind == TensorKind::kConvolution) {
      add_vector(spec);
      return {};
    }
    return choice_.is_gguf ? add_gguf(spec) : add_safetensors(spec);
  }

  std::vector<PlannedTensor> take() { return std::move(tensors_); }

 private:
  // --- vectors ---

  void add_vector(const TensorSpec& spec) {
    const Spelling& spelling = spec.spellings.front();
    PlannedTensor tensor;
    tensor.name = spelling.name + (spelling.suffixed ? ".weight" : "");
    tensor.shape = spec.shape;
    if (is_half(spelling.stored_as)) tensor.shape.back() *= 2;
    set_dtype(tensor, DType::kF32);
    tensor.content = Content::kConstant;
    tensor.value = 1.0F - spec.add;
    const std::string_view role = spec.role;
    if (spec.kind == TensorKind::kConvolution) {
      tensor.content = Content::kNoise;
      tensor.value = 0.5F;
    } else if (role.ends_with("bias") || role.ends_with("sinks")) {
      tensor.content = Content::kNoise;
      tensor.value = 0.1F;
    } else if (role.ends_with("a_log")) {
      tensor.value = choice_.is_gguf ? -1.0F : 0.0F;  // -exp(0), which GGUF files hold, or its logarithm
    }
    push(std::move(tensor));
  }

  // --- matrices ---

  [[nodiscard]] FormatId format_of(const TensorSpec& spec) const {
    switch (spec.kind) {
      case TensorKind::kEmbedding: return choice_.embedding;
      case TensorKind::kHead: return choice_.head;
      case TensorKind::kOtherLinear: return choice_.other;
      default: return spec.shape.size() == 3 ? choice_.experts : choice_.linear;
    }
  }

  [[nodiscard]] Matrix matrix_of(const TensorSpec& spec) const {
    const std::size_t rank = spec.shape.size();
    return {spec.spellings.front().name, rank == 3 ? spec.shape[0] : 0, spec.shape[rank - 2], spec.shape[rank - 1],
            format_of(spec)};
  }

  Status add_gguf(const TensorSpec& spec) {
    const Matrix matrix = matrix_of(spec);
    const FormatInfo& info = format_info(matrix.format);
    const WeightLayout layout = info.has_interleaved ? WeightLayout::kInterleaved : WeightLayout::kPlain;
    if (info.gguf_type == kNoGgufType) {
      return fail(ErrorCode::kInvalidArgument, "GGUF has no type for {}", info.name);
    }
    VN_ASSIGN(PlannedTensor codes, part_of(matrix, layout, Content::kCodes));
    codes.name = matrix.name + ".weight";
    codes.shape = matrix.extents({matrix.rows, matrix.cols});
    codes.type_name = info.name;
    codes.ggml_type = static_cast<std::uint32_t>(info.gguf_type);
    if (!info.has_interleaved) codes.dtype = info.code_dtype;
    codes.holds_bf16 = spec.kind == TensorKind::kOtherLinear && matrix.format == kFormatIdOf<F32Format>;
    push(codes);
    if (info.outer_scale == OuterScaleUse::kNone) return {};
    PlannedTensor outer =
        scale_of(codes, Content::kOuter, matrix.name + ".scale", {std::max<std::uint64_t>(matrix.experts, 1)});
    set_dtype(outer, DType::kF32);
    push(std::move(outer));
    return {};
  }

  Status add_safetensors(const TensorSpec& spec) {
    Matrix matrix = matrix_of(spec);
    if (matrix.experts == 0) return add_separate(matrix);
    // A whole bank in one tensor is how gpt-oss stores its own; everyone else has a tensor an expert.
    const bool is_split = has_exponent_scales(format_info(matrix.format));
    const bool fused_rows =
        spec.spellings.back().stored_as == StoredAs::kEvenRows || spec.spellings.back().stored_as == StoredAs::kOddRows;
    fused_ = fused_ || fused_rows;
    for (const Spelling& spelling : spec.spellings) {
      if (is_split && fused_ && !spelling.suffixed) {
        matrix.name = spelling.name;
        if (is_half(spelling.stored_as)) matrix.rows *= 2;
        return add_bank(matrix);
      }
    }
    for (const Spelling& spelling : spec.spellings) {
      if (spelling.stored_as == StoredAs::kPerExpert) return add_experts(matrix, spelling.name);
    }
    return fail(ErrorCode::kInternal, "{}: no spelling of single experts", spec.role);
  }

  Status add_experts(const Matrix& bank, std::string_view pattern) {
    const std::size_t at = pattern.find("{e}");
    Matrix expert = bank;
    expert.experts = 0;
    for (std::uint64_t e = 0; e < bank.experts; ++e) {
      expert.name = fmt::format("{}{}{}", pattern.substr(0, at), e, pattern.substr(at + 3));
      VN_TRY(add_separate(expert));
    }
    return {};
  }

  /// "x_blocks" [experts, rows, groups, bytes a group] and "x_scales".
  Status add_bank(const Matrix& matrix) {
    const auto group = static_cast<std::uint64_t>(format_info(matrix.format).scale_values);
    VN_ASSIGN(PlannedTensor codes, part_of(matrix, WeightLayout::kSeparate, Content::kCodes));
    codes.name = matrix.name + "_blocks";
    codes.shape = matrix.extents({matrix.rows, matrix.cols / group, group / 2});
    set_dtype(codes, DType::kU8);
    PlannedTensor scales =
        scale_of(codes, Content::kScales, matrix.name + "_scales", matrix.extents({matrix.rows, matrix.cols / group}));
    set_dtype(scales, DType::kU8);
    push(std::move(codes));
    push(std::move(scales));
    return {};
  }

  /// One matrix as ModelOpt (two levels), compressed-tensors (exponents) or HF's FP8 spell it, or as plain numbers.
  Status add_separate(const Matrix& matrix) {
    const FormatInfo& info = format_info(matrix.format);
    if (!info.has_plain && !info.has_separate) {
      return fail(ErrorCode::kInvalidArgument, "only GGUF has {}", info.name);
    }
    const bool is_packed = info.code_bits < 8;
    const bool has_exponents = has_exponent_scales(info);
    VN_ASSIGN(PlannedTensor codes,
              part_of(matrix, info.has_separate ? WeightLayout::kSeparate : WeightLayout::kPlain, Content::kCodes));
    codes.name = matrix.name + (is_packed && has_exponents ? ".weight_packed" : ".weight");
    codes.shape = {matrix.rows, is_packed ? matrix.cols / 2 : matrix.cols};
    set_dtype(codes, is_packed ? DType::kU8 : info.code_dtype);
    push(codes);
    if (info.has_separate) {
      const Extents grid = info.has_grid
                               ? Extents{ceil_div(matrix.rows, kTile), ceil_div(matrix.cols, kTile)}
                               : Extents{matrix.rows, matrix.cols / static_cast<std::uint64_t>(info.scale_values)};
      PlannedTensor scales = scale_of(codes, Content::kScales,
                                      matrix.name + (info.has_grid ? ".weight_scale_inv" : ".weight_scale"), grid);
      set_dtype(scales, has_exponents ? DType::kU8 : info.scale_dtype);
      push(std::move(scales));
    }
    if (info.outer_scale == OuterScaleUse::kNone) return {};
    const bool by_row = matrix.format == kFormatIdOf<Fp8RowFormat>;
    PlannedTensor outer =
        scale_of(codes, Content::kOuter, matrix.name + (info.has_separate ? ".weight_scale_2" : ".weight_scale"),
                 by_row ? Extents{matrix.rows, 1} : Extents{1});
    set_dtype(outer, DType::kF32);
    push(std::move(outer));
    return {};
  }

  static Result<PlannedTensor> part_of(const Matrix& matrix, WeightLayout layout, Content content) {
    const FormatInfo& info = format_info(matrix.format);
    const auto row_bytes = info.row_bytes(layout, static_cast<std::int64_t>(matrix.cols));
    if (!row_bytes) {
      return fail(ErrorCode::kInvalidArgument, "{} has rows of {} values, which {} can't store (blocks of {})",
                  matrix.name, matrix.cols, info.name, info.cols_multiple(layout));
    }
    PlannedTensor tensor;
    tensor.content = content;
    tensor.format = matrix.format;
    tensor.layout = layout;
    tensor.cols = static_cast<std::int64_t>(matrix.cols);
    tensor.size = std::max<std::uint64_t>(matrix.experts, 1) * matrix.rows * static_cast<std::uint64_t>(*row_bytes);
    return tensor;
  }

  /// Another part of the matrix that `codes` belongs to; set_dtype() gives it its size.
  static PlannedTensor scale_of(const PlannedTensor& codes, Content content, std::string name, Extents shape) {
    PlannedTensor tensor = codes;
    tensor.content = content;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.ggml_type.reset();
    tensor.size = 0;
    return tensor;
  }

  /// The element type; the size follows from it unless part_of() knew it.
  void set_dtype(PlannedTensor& tensor, DType dtype) const {
    tensor.dtype = dtype;
    tensor.type_name = dtype_name(dtype);
    if (choice_.is_gguf) {
      const FormatInfo& info = format_info(*find_plain_format(dtype));
      tensor.type_name = info.name;
      tensor.ggml_type = static_cast<std::uint32_t>(info.gguf_type);
    }
    if (tensor.size == 0) tensor.size = *checked_product(tensor.shape) * (dtype_bits(dtype) / 8);
  }

  /// Two roles may be parts of one stored tensor.
  void push(PlannedTensor tensor) {
    if (names_.insert(tensor.name).second) tensors_.push_back(std::move(tensor));
  }

  const StorageChoice& choice_;
  std::vector<PlannedTensor> tensors_;
  std::unordered_set<std::string> names_;
  bool fused_ = false;  // gate and up alternate in one tensor, so down is a bank, too
};

}  // namespace

Result<std::vector<PlannedTensor>> plan_tensors(const std::vector<TensorSpec>& specs, const StorageChoice& choice) {
  Planner planner(choice);
  for (const TensorSpec& spec : specs) VN_TRY(planner.add(spec));
  return planner.take();
}

}  // namespace vernier::bench
