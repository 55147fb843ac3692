#include "checkpoint/quant_config.h"

#include <algorithm>

namespace vernier {
namespace {

/// A string member, or "" when it is absent or not a string.
std::string_view text_of_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? std::string_view(value->as_string()) : std::string_view{};
}

/// A small positive integer member, or 0.
std::int64_t size_of_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr || !value->is_integer() || value->is_big_unsigned()) return 0;
  return std::max<std::int64_t>(value->as_int64(), 0);
}

/// The member when it is an object, else null.
const Json* object_member(const Json* json, std::string_view key) {
  const Json* value = json == nullptr ? nullptr : json->find(key);
  return value != nullptr && value->is_object() ? value : nullptr;
}

tl::unexpected<Error> wrong_kind(std::string_view field, std::string_view expected, const Json& found) {
  return fail(ErrorCode::kCorrupt, "{} is of type {}, expected {}", field, found.type_name(), expected);
}

/// Module classes in `targets`, which mean every linear module.
bool is_class_name(std::string_view target) { return target == "Linear" || target == "LinearBase"; }

/// The quantisation object of config.json: in its top level, or in that of the text model.
const Json* find_declaration(const Json* config) {
  const Json* found = object_member(config, "quantization_config");
  if (found == nullptr) found = object_member(object_member(config, "text_config"), "quantization_config");
  return found == nullptr || found->as_object().empty() ? nullptr : found;
}

struct UnsupportedMethod {
  std::string_view method;
  std::string_view name;
};

constexpr UnsupportedMethod kUnsupportedMethods[] = {
    {"bitsandbytes", "bitsandbytes"}, {"awq", "AWQ"},     {"gptq", "GPTQ"},         {"auto-round", "AutoRound"},
    {"auto_round", "AutoRound"},      {"quark", "Quark"}, {"fbgemm_fp8", "FBGEMM"}, {"mlx", "MLX"},
};

tl::unexpected<Error> unsupported_method(std::string_view method) {
  constexpr std::string_view kKnown = "modelopt, compressed-tensors, fp8 and the method of gpt-oss";
  for (const UnsupportedMethod& known : kUnsupportedMethods) {
    if (known.method != method) continue;
    return fail(ErrorCode::kUnsupported, "the checkpoint is quantised by {} (quant_method '{}'); Vernier runs {}",
                known.name, method, kKnown);
  }
  return fail(ErrorCode::kUnsupported, "quant_method '{}' is unknown; Vernier runs {}", escape(method), kKnown);
}

}  // namespace

Result<QuantConfig> QuantConfig::parse(const Json* config, const Json* hf_quant_config) {
  QuantConfig result;
  const Json* object = find_declaration(config);
  const Json* hf_object = object_member(hf_quant_config, "quantization");
  // MLX writes its own key, and often repeats it under the usual one.
  const Json* mlx = object_member(config, "quantization");
  for (const Json* candidate : {mlx, object}) {
    if (candidate == nullptr || !text_of_member(*candidate, "quant_method").empty()) continue;
    if (candidate->find("bits") == nullptr || candidate->find("group_size") == nullptr) continue;
    return fail(ErrorCode::kUnsupported,
                "config.json: the checkpoint is an MLX affine quantisation ({} bits, groups of "
                "{}); Vernier doesn't run it",
                size_of_member(*candidate, "bits"), size_of_member(*candidate, "group_size"));
  }
  if (object == nullptr && hf_object == nullptr) return result;
  result.declared_ = true;
  Status status;
  std::string_view method = object == nullptr ? "modelopt" : text_of_member(*object, "quant_method");
  const bool has_algorithm = object != nullptr && !text_of_member(*object, "quant_algo").empty();
  if (method.empty() && (has_algorithm || hf_object != nullptr)) method = "modelopt";
  if (method == "modelopt") {
    const bool use_hf = object == nullptr || !has_algorithm;
    if (use_hf) result.source_ = "hf_quant_config.json";
    if (use_hf && hf_object == nullptr) {
      return fail(ErrorCode::kCorrupt, "config.json: quantization_config has no quant_algo");
    }
    result.dialect_ = "modelopt";
    status = result.parse_modelopt(use_hf ? *hf_object : *object, use_hf);
  } else if (method == "compressed-tensors" || method == "compressed_tensors") {
    result.dialect_ = "compressed-tensors";
    status = result.parse_compressed(*object);
  } else if (method == "fp8") {
    result.dialect_ = "fp8";
    status = result.parse_fp8(*object);
  } else if (is_gpt_oss_method(method)) {
    result.dialect_ = "gpt-oss";
    status = result.parse_gpt_oss(*object);
  } else {
    return unsupported_method(method);
  }
  if (!status) return tl::unexpected(with_context(std::move(status).error(), result.source_));
  return result;
}

Status QuantConfig::add_excluded(const Json& object, std::string_view field, ModuleList::Below below) {
  const Json* list = object.find(field);
  if (list == nullptr || list->is_null()) return {};
  if (!list->is_array()) return wrong_kind(field, "an array of strings", *list);
  for (const Json& entry : list->as_array()) {
    if (!entry.is_string()) return wrong_kind(field, "an array of strings", entry);
    VN_TRY(excluded_.add(entry.as_string(), below));
  }
  return {};
}

Status QuantConfig::parse_block_size(const Json& value, std::string_view field) {
  if (value.is_null()) return {};
  const bool is_pair = value.is_array() && value.as_array().size() == 2 && value.as_array()[0].is_integer() &&
                       value.as_array()[1].is_integer() && !value.as_array()[0].is_big_unsigned() &&
                       !value.as_array()[1].is_big_unsigned();
  if (!is_pair) return wrong_kind(field, "a pair of integers", value);
  block_rows_ = value.as_array()[0].as_int64();
  block_cols_ = value.as_array()[1].as_int64();
  constexpr std::int64_t kMaxBlock = 1 << 20;
  if (block_rows_ < 1 || block_cols_ < 1 || block_rows_ > kMaxBlock || block_cols_ > kMaxBlock) {
    return fail(ErrorCode::kCorrupt, "{} is [{}, {}], expected sizes of 1 to {}", field, block_rows_, block_cols_,
                kMaxBlock);
  }
  return {};
}

// --- ModelOpt ---

Status QuantConfig::parse_modelopt(const Json& object, bool is_hf_file) {
  const std::string_view algorithm = text_of_member(object, "quant_algo");
  VN_TRY(add_excluded(object, is_hf_file ? "exclude_modules" : "ignore", ModuleList::Below::kNo));
  const Json* layers = object_member(&object, "quantized_layers");
  if (layers != nullptr && !layers->as_object().empty()) return parse_quantized_layers(*layers);
  const std::optional<Scheme> scheme = scheme_of_algorithm(algorithm);
  if (!scheme) {
    if (algorithm == "MIXED_PRECISION") {
      return fail(ErrorCode::kCorrupt, "quant_algo is MIXED_PRECISION, but there are no quantized_layers");
    }
    return fail(ErrorCode::kUnsupported, "quant_algo '{}' isn't one that Vernier runs", escape(algorithm));
  }
  Group group;
  group.declared.scheme = *scheme;
  group.declared.group_size = size_of_member(object, "group_size");
  group.all_linear = true;
  if (const Json* groups = object_member(&object, "config_groups"); groups != nullptr) {
    for (const auto& [name, value] : groups->as_object()) {
      const Json* weights = object_member(&value, "weights");
      if (weights != nullptr && group.declared.group_size == 0) {
        group.declared.group_size = size_of_member(*weights, "group_size");
      }
      const Json* targets = value.find("targets");
      if (targets == nullptr || !targets->is_array()) continue;
      for (const Json& target : targets->as_array()) {
        if (!target.is_string() || is_class_name(target.as_string())) continue;
        // A white list.
        group.all_linear = false;
        VN_TRY(group.targets.add(target.as_string(), ModuleList::Below::kYes));
      }
    }
  }
  groups_.push_back(std::move(group));
  return {};
}

Status QuantConfig::parse_quantized_layers(const Json& layers) {
  for (const auto& [module, value] : layers.as_object()) {
    const std::string_view algorithm = text_of_member(value, "quant_algo");
    const std::optional<Scheme> scheme = scheme_of_algorithm(algorithm);
    if (!scheme) {
      return fail(ErrorCode::kUnsupported, "quantized_layers: '{}' has quant_algo '{}', which Vernier doesn't run",
                  escape(module), escape(algorithm));
    }
    const std::int64_t size = size_of_member(value, "group_size");
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& candidate) {
      return candidate.declared.scheme == *scheme && candidate.declared.group_size == size;
    });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{{*scheme, size}, false, {}});
    VN_TRY(group->targets.add(module, ModuleList::Below::kYes));
  }
  return {};
}

// --- compressed-tensors ---

Status QuantConfig::parse_compressed(const Json& object) {
  VN_TRY(add_excluded(object, "ignore", ModuleList::Below::kNo));
  const std::string_view format = text_of_member(object, "format");
  if (!format.empty() && !is_known_compressed_format(format)) {
    return fail(ErrorCode::kUnsupported, "compressed-tensors format '{}' isn't one that Vernier runs", escape(format));
  }
  const Json* groups = object_member(&object, "config_groups");
  if (groups == nullptr) return {};
  for (const auto& [name, group] : groups->as_object()) VN_TRY(parse_compressed_group(group, name));
  return {};
}

Status QuantConfig::parse_compressed_group(const Json& group, std::string_view name) {
  const std::string_view format = text_of_member(group, "format");
  if (!format.empty() && !is_known_compressed_format(format)) {
    return fail(ErrorCode::kUnsupported, "config_groups.{}: compressed-tensors format '{}' isn't one that Vernier runs",
                escape(name), escape(format));
  }
  const Json* weights = object_member(&group, "weights");
  if (weights == nullptr) return {};  // activations or caches only
  const std::string_view type = text_of_member(*weights, "type");
  const std::int64_t bits = size_of_member(*weights, "num_bits");
  const std::int64_t group_size = size_of_member(*weights, "group_size");
  const std::optional<Scheme> scheme = scheme_of_float(bits, group_size);
  if (type != "float" || !scheme) {
    return fail(ErrorCode::kUnsupported,
                "config_groups.{}: weights of {} bits of type '{}' aren't ones that Vernier runs", escape(name), bits,
                escape(type));
  }
  if (const Json* block = weights->find("block_structure"); block != nullptr && block->is_array()) {
    VN_TRY(parse_block_size(*block, "block_structure"));
  }
  Group parsed;
  parsed.declared = {*scheme, *scheme == Scheme::kFp8 ? 0 : group_size};
  const Json* targets = group.find("targets");
  if (targets != nullptr && targets->is_array()) {
    for (const Json& target : targets->as_array()) {
      if (!target.is_string()) return wrong_kind("targets", "an array of strings", target);
      if (is_class_name(target.as_string())) {
        parsed.all_linear = true;
      } else {
        VN_TRY(parsed.targets.add(target.as_string(), ModuleList::Below::kNo));
      }
    }
  }
  groups_.push_back(std::move(parsed));
  return {};
}

// --- Hugging Face fp8, gpt-oss ---

Status QuantConfig::parse_fp8(const Json& object) {
  const std::string_view fmt = text_of_member(object, "fmt");
  if (!fmt.empty() && fmt != "e4m3") {
    return fail(ErrorCode::kUnsupported, "fmt '{}': FP8 weights are supported as e4m3 only", escape(fmt));
  }
  if (const Json* size = object.find("weight_block_size"); size != nullptr) {
    VN_TRY(parse_block_size(*size, "weight_block_size"));
  }
  VN_TRY(add_excluded(object, "modules_to_not_convert", ModuleList::Below::kYes));
  groups_.push_back(Group{{Scheme::kFp8, 0}, true, {}});
  return {};
}

Status QuantConfig::parse_gpt_oss(const Json& object) {
  VN_TRY(add_excluded(object, "modules_to_not_convert", ModuleList::Below::kYes));
  experts_only_ = true;
  groups_.push_back(Group{{Scheme::kMicroscaledFp4, 0}, true, {}});
  return {};
}

std::optional<Declared> QuantConfig::about(std::string_view module) const {
  if (!declared_ || groups_.empty()) return std::nullopt;
  if (excluded_.matches(module)) return Declared{};
  if (experts_only_ && module.find(".experts.") == std::string_view::npos) return Declared{};
  for (const Group& group : groups_) {
    if (group.targets.matches(module)) return group.declared;
  }
  for (const Group& group : groups_) {
    if (group.all_linear) return group.declared;
  }
  return Declared{};
}

bool QuantConfig::may_mean(std::string_view module, Scheme found) const {
  if (found == Scheme::kPlain) return excluded_.suggests(module);
  if (excluded_.matches(module)) return false;
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    return group.declared.scheme == found && group.targets.suggests(module);
  });
}

}  // namespace vernier
