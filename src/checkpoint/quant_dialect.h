// The producer dialects: what ModelOpt, compressed-tensors, Hugging Face's fp8, gpt-oss and GGUF call the parts of a
// quantised weight, what shapes and dtypes the parts must have, and which way a scale acts. What the bytes mean is in
// format/; which weights a model has is its own business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/tensor_record.h"
#include "tensor/weight.h"

namespace vernier {

/// What a tensor is to the weight that its name begins with.
enum class TensorPart : std::uint8_t {
  kOther,          ///< no suffix that is known here: the name stands for itself
  kWeight,         ///< ".weight"
  kPacked,         ///< ".weight_packed": two codes a byte (compressed-tensors)
  kBlocks,         ///< "_blocks": two codes a byte (gpt-oss)
  kScale,          ///< ".weight_scale": block, row or tensor scales, multiplied
  kInverseScale,   ///< ".weight_scale_inv": a grid, multiplied despite its name
  kBlockScales,    ///< "_scales": block scales (gpt-oss)
  kMultiplier,     ///< ".weight_scale_2": second level, multiplied (ModelOpt)
  kDivisor,        ///< ".weight_global_scale": second level, divided by (compressed-tensors)
  kSidecar,        ///< ".scale": second level, multiplied (GGUF)
  kWeightSidecar,  ///< ".weight.scale": the same, another spelling
  kInputScale,     ///< of activations: not used here
  kCacheScale,     ///< of the KV cache: not used here
  kForeign,        ///< a part of a quantisation that Vernier doesn't know
};
inline constexpr std::size_t kNumTensorParts = static_cast<std::size_t>(TensorPart::kForeign) + 1;

/// True for scales of weights: kScale ... kWeightSidecar.
[[nodiscard]] constexpr bool is_weight_scale(TensorPart part) {
  return part >= TensorPart::kScale && part <= TensorPart::kWeightSidecar;
}

struct NameParts {
  std::string_view stem;
  TensorPart part = TensorPart::kOther;
};

/// "a.b.weight_scale" -> {"a.b", kScale}; a name without a known suffix is its own stem.
[[nodiscard]] NameParts split_name(std::string_view name);

/// The quantisation that a foreign part belongs to ("bitsandbytes", "GPTQ or AWQ", ...).
[[nodiscard]] std::string_view foreign_producer(std::string_view name);

inline constexpr std::uint32_t kNoTensor = UINT32_MAX;

/// The tensors of one weight, by part: positions in the list of records.
struct TensorParts {
  std::uint32_t twice = kNoTensor;  ///< one of two spellings of the same part
  std::array<std::uint32_t, kNumTensorParts> records;

  TensorParts() { records.fill(kNoTensor); }
  std::uint32_t& operator[](TensorPart part) { return records[static_cast<std::size_t>(part)]; }
  std::uint32_t operator[](TensorPart part) const { return records[static_cast<std::size_t>(part)]; }
  [[nodiscard]] bool has(TensorPart part) const { return (*this)[part] != kNoTensor; }
};

/// The kinds of storage that a quantisation config can declare.
enum class Scheme : std::uint8_t { kPlain, kFp8, kTwoLevelFp4, kMicroscaledFp4 };

/// For messages: "unquantised", "FP8", ...
[[nodiscard]] std::string_view scheme_name(Scheme scheme);
/// The scheme of a format: kPlain for everything that only GGUF has.
[[nodiscard]] Scheme scheme_of(FormatId format);
/// Values along a row under one block scale; 0: none, or a grid.
[[nodiscard]] std::int64_t scheme_group_size(Scheme scheme);
/// The scheme of a ModelOpt `quant_algo`, in any case; nothing where Vernier doesn't have it.
[[nodiscard]] std::optional<Scheme> scheme_of_algorithm(std::string_view algorithm);
/// The scheme of a floating-point group of compressed-tensors; nothing where there is none.
[[nodiscard]] std::optional<Scheme> scheme_of_float(std::int64_t bits, std::int64_t group_size);
/// True for the `quant_method` of gpt-oss.
[[nodiscard]] bool is_gpt_oss_method(std::string_view method);
/// The `format` strings of compressed-tensors that are supported.
[[nodiscard]] bool is_known_compressed_format(std::string_view format);

/// Extents of a stored weight in values, not bytes.
struct MatrixShape {
  std::uint64_t experts = 0;  ///< 0: one matrix; else a bank stacked along a first axis
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
};

/// How second-level factors are spread over a stored weight.
enum class OuterSpread : std::uint8_t {
  kNone,
  kOne,            ///< one value
  kPerExpert,      ///< [experts]
  kPerExpertHalf,  ///< [experts, 2]: of the first and second half (or even and odd rows) of each expert
  kPerRow,         ///< [rows] or [experts, rows]
};

/// A weight as its tensors store it, everything checked against the headers.
struct StoredMatrix {
  FormatId format{};
  WeightLayout layout = WeightLayout::kPlain;
  MatrixShape shape;
  std::uint32_t codes = kNoTensor;
  std::uint32_t scales = kNoTensor;  ///< block scales, kSeparate only
  std::uint32_t outer = kNoTensor;
  OuterSpread outer_spread = OuterSpread::kNone;
  bool outer_divides = false;
  DType scale_dtype = DType::kF32;
  std::int32_t scale_block_rows = 1;
  std::int32_t scale_block_cols = 0;
};

/// What recognising a weight depends on besides its own tensors.
struct DialectContext {
  std::span<const TensorRecord> records;
  bool gguf = false;
  /// The config's `weight_block_size`; 0: none declared.
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
  /// Some tensor of the checkpoint is a kDivisor, so that a weight without one isn't of a producer that writes none.
  bool has_divisors = false;
};

/// Tells how a weight is stored from what is there: dtypes and shapes first, then names. `parts` has the tensor of the
/// codes as kWeight, kPacked, kBlocks or kOther. Errors name tensor, what was found and what was expected: wrong shape
/// or dtype, a scale missing, scales that don't belong together.
[[nodiscard]] Result<StoredMatrix> recognise(const TensorParts& parts, const MatrixShape& expected,
                                             const DialectContext& context);

/// As recognise(), of a GGUF tensor (quant_dialect_gguf.cc).
[[nodiscard]] Result<StoredMatrix> recognise_gguf(const TensorParts& parts, const MatrixShape& expected,
                                                  const DialectContext& context);

/// The record that holds a weight's codes, or kNoTensor.
[[nodiscard]] std::uint32_t codes_of(const TensorParts& parts);

/// "model.safetensors: tensor 'x'": how messages begin.
[[nodiscard]] std::string label(const TensorRecord& record);

/// True when a GGUF tensor's type takes a second-level scale.
[[nodiscard]] bool takes_sidecar(const TensorRecord& record);

}  // namespace vernier
