// Names: the suffixes of all dialects, and the words of their configs. The rules on dtypes and shapes are in
// quant_dialect_safetensors.cc and quant_dialect_gguf.cc.
#include "checkpoint/quant_dialect.h"

#include <algorithm>
#include <cctype>

#include "format/format_list.h"

namespace vernier {
namespace {

struct Suffix {
  std::string_view text;
  TensorPart part;
};

// Longer ones before those that they end in.
constexpr Suffix kSuffixes[] = {
    {".weight_global_scale", TensorPart::kDivisor},
    {".weight_scale_inv", TensorPart::kInverseScale},
    {"_weight_scale_inv", TensorPart::kInverseScale},
    {"_scales_inv", TensorPart::kInverseScale},
    {"_scale_inv", TensorPart::kInverseScale},
    {".weight_scale_2", TensorPart::kMultiplier},
    {"_weight_scale_2", TensorPart::kMultiplier},
    {".weight_packed", TensorPart::kPacked},
    {".weight_scale", TensorPart::kScale},
    {"_weight_scale", TensorPart::kScale},
    {".weight.input_scale", TensorPart::kInputScale},
    {".input_global_scale", TensorPart::kInputScale},
    {".activation_scale", TensorPart::kInputScale},
    {".input_scale", TensorPart::kInputScale},
    {"_input_scale", TensorPart::kInputScale},
    {".k_scale", TensorPart::kCacheScale},
    {".v_scale", TensorPart::kCacheScale},
    {".kv_scale", TensorPart::kCacheScale},
    {".weight.scale", TensorPart::kWeightSidecar},
    {".scale", TensorPart::kSidecar},
    {"_blocks", TensorPart::kBlocks},
    {"_scales", TensorPart::kBlockScales},
    {".weight", TensorPart::kWeight},
};

struct ForeignSuffix {
  std::string_view text;
  std::string_view producer;
};

constexpr ForeignSuffix kForeignSuffixes[] = {
    {".qweight", "AWQ, GPTQ or AutoRound"},
    {".qzeros", "AWQ, GPTQ or AutoRound"},
    {".g_idx", "AWQ, GPTQ or AutoRound"},
    {".SCB", "bitsandbytes"},
    {".weight_format", "bitsandbytes"},
    {".absmax", "bitsandbytes"},
    {".nested_absmax", "bitsandbytes"},
    {".quant_map", "bitsandbytes"},
    {".nested_quant_map", "bitsandbytes"},
    {".quant_state.bitsandbytes__nf4", "bitsandbytes"},
    {".quant_state.bitsandbytes__fp4", "bitsandbytes"},
    {".scales", "MLX affine"},
    {".biases", "MLX affine"},
    {".weight_shape", "compressed-tensors integer"},
    {".weight_zero_point", "compressed-tensors integer"},
    {".smooth_quant_scale", "SmoothQuant"},
    {".pre_quant_scale", "AWQ-style pre-scaled"},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return result;
}

struct Algorithm {
  std::string_view name;
  Scheme scheme;
};

constexpr Algorithm kAlgorithms[] = {
    {"fp8", Scheme::kFp8},           {"fp8_per_channel_per_token", Scheme::kFp8}, {"fp8_pb_wo", Scheme::kFp8},
    {"nvfp4", Scheme::kTwoLevelFp4}, {"w4a16_nvfp4", Scheme::kTwoLevelFp4},
};

}  // namespace

NameParts split_name(std::string_view name) {
  for (const Suffix& suffix : kSuffixes) {
    if (name.size() <= suffix.text.size() || !name.ends_with(suffix.text)) continue;
    return {name.substr(0, name.size() - suffix.text.size()), suffix.part};
  }
  if (!foreign_producer(name).empty()) return {name, TensorPart::kForeign};
  return {name, TensorPart::kOther};
}

std::string_view foreign_producer(std::string_view name) {
  for (const ForeignSuffix& suffix : kForeignSuffixes) {
    if (name.ends_with(suffix.text)) return suffix.producer;
  }
  return {};
}

std::string_view scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::kPlain: return "unquantised";
    case Scheme::kFp8: return "FP8";
    case Scheme::kTwoLevelFp4: return "NVFP4";
    case Scheme::kMicroscaledFp4: return "MXFP4";
  }
  return "";
}

Scheme scheme_of(FormatId format) {
  if (format == kFormatIdOf<Nvfp4Format>) return Scheme::kTwoLevelFp4;
  if (format == kFormatIdOf<Mxfp4Format>) return Scheme::kMicroscaledFp4;
  const FormatInfo& info = format_info(format);
  const bool is_fp8 = info.code_bits == 8 && info.code_dtype == DType::kF8E4M3;
  return is_fp8 ? Scheme::kFp8 : Scheme::kPlain;
}

std::int64_t scheme_group_size(Scheme scheme) {
  if (scheme == Scheme::kTwoLevelFp4) return Nvfp4Format::kScaleValues;
  if (scheme == Scheme::kMicroscaledFp4) return Mxfp4Format::kScaleValues;
  return 0;
}

std::optional<Scheme> scheme_of_algorithm(std::string_view algorithm) {
  const std::string name = lower(algorithm);
  for (const Algorithm& known : kAlgorithms) {
    if (known.name == name) return known.scheme;
  }
  return std::nullopt;
}

std::optional<Scheme> scheme_of_float(std::int64_t bits, std::int64_t group_size) {
  if (bits == 8) return Scheme::kFp8;
  if (bits != 4) return std::nullopt;
  return group_size == Mxfp4Format::kScaleValues ? Scheme::kMicroscaledFp4 : Scheme::kTwoLevelFp4;
}

bool is_gpt_oss_method(std::string_view method) { return method == "mxfp4"; }

bool is_known_compressed_format(std::string_view format) {
  constexpr std::string_view kKnown[] = {"nvfp4-pack-quantized", "mxfp4-pack-quantized", "float-quantized",
                                         "mixed-precision", "dense"};
  return std::find(std::begin(kKnown), std::end(kKnown), format) != std::end(kKnown);
}

std::uint32_t codes_of(const TensorParts& parts) {
  for (const TensorPart part : {TensorPart::kWeight, TensorPart::kPacked, TensorPart::kBlocks, TensorPart::kOther}) {
    if (parts.has(part)) return parts[part];
  }
  return kNoTensor;
}

std::string label(const TensorRecord& record) {
  return fmt::format("{}: tensor '{}'", escape(record.file ? record.file->name() : "checkpoint"), escape(record.name));
}

bool takes_sidecar(const TensorRecord& record) {
  if (!record.ggml_type) return false;
  const auto format = find_gguf_type(*record.ggml_type);
  return format && format_info(*format).outer_scale != OuterScaleUse::kNone;
}

}  // namespace vernier
