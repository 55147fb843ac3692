// From a checkpoint's headers to the family and its configuration.
#include <algorithm>
#include <array>
#include <string>

#include "base/json.h"
#include "checkpoint/checkpoint_files.h"
#include "model/config_reader.h"
#include "model/gguf_config.h"
#include "model/model.h"

namespace vernier {
namespace {

tl::unexpected<Error> unknown_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : model_list()) {
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return fail(ErrorCode::kUnsupported, "architecture '{}' isn't supported; supported: {}", escape(name), known);
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool any_name_starts_with(const CheckpointFiles& files, std::string_view prefix) {
  const auto order = files.by_name();
  const auto& tensors = files.tensors();
  const auto at = std::lower_bound(order.begin(), order.end(), prefix, [&](std::uint32_t i, std::string_view wanted) {
    return std::string_view(tensors[i].name) < wanted;
  });
  return at != order.end() && std::string_view(tensors[*at].name).starts_with(prefix);
}

/// What stands before "layers.0." in the files' names: decided once, from the names themselves.
std::string find_name_prefix(const CheckpointFiles& files) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"model.language_model.", "language_model.model.", "model.",
                                                         "language_model.", ""};
  for (const char* const member : {"layers.", "embed_tokens."}) {
    for (const std::string_view prefix : kPrefixes) {
      if (any_name_starts_with(files, std::string(prefix) + member)) return std::string(prefix);
    }
  }
  return "model.";
}

Result<ModelDescription> describe_gguf(const CheckpointFiles& files) {
  VN_ASSIGN(const Json keys, json_from_gguf(*files.gguf()));
  const Json* name = keys.find("general.architecture");
  if (name == nullptr || !name->is_string()) {
    return fail(ErrorCode::kCorrupt, "general.architecture must be a string, found {}",
                name == nullptr ? "nothing" : describe_json(*name));
  }
  for (const Architecture& architecture : model_list()) {
    if (!contains(architecture.gguf_names, name->as_string())) continue;
    VN_ASSIGN(ModelConfig config, architecture.config_from_gguf(keys));
    if (config.vocab_size == 0) {  // no tokenizer inside and no key: the embedding tells
      const TensorRecord* embedding = files.find("token_embd.weight");
      if (embedding != nullptr && embedding->shape.size() == 2) {
        config.vocab_size = static_cast<std::int64_t>(std::min<std::uint64_t>(embedding->shape[0], 1U << 24U));
      }
    }
    return ModelDescription{&architecture, std::move(config)};
  }
  return unknown_architecture(name->as_string());
}

/// "auto_map" names code to run; Vernier has its own and reads the rest of the file.
void warn_of_code(const Json& config, ModelConfig& described) {
  if (config.find("auto_map") != nullptr) {
    described.warnings.emplace_back("config.json names code of its own (auto_map), which isn't executed");
  }
}

Result<ModelDescription> describe_hf(const CheckpointFiles& files) {
  VN_ASSIGN(const auto file, files.side_file(SideFile::kConfig));
  if (file == nullptr) {
    return fail_with_hint(ErrorCode::kNotFound, "a safetensors checkpoint needs its config.json beside it",
                          "config.json is missing");
  }
  auto parsed = parse_json(text_of(file));
  if (!parsed) return tl::unexpected(with_context(std::move(parsed).error(), "config.json"));
  VN_ASSIGN(ModelDescription description, describe_config(*parsed));
  description.config.name_prefix = find_name_prefix(files);
  return description;
}

}  // namespace

Result<ModelDescription> describe_config(const Json& config) {
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) {
    return fail(ErrorCode::kCorrupt, "config.json: model_type must be a string, found {}",
                type == nullptr ? "nothing" : describe_json(*type));
  }
  for (const Architecture& architecture : model_list()) {
    if (!contains(architecture.hf_model_types, type->as_string())) continue;
    auto described = architecture.config_from_hf(config);
    if (!described) return tl::unexpected(with_context(std::move(described).error(), "config.json"));
    described->name_prefix = "model.";
    described->architecture = architecture.name;
    warn_of_code(config, *described);
    return ModelDescription{&architecture, *std::move(described)};
  }
  return unknown_architecture(type->as_string());
}

Result<ModelDescription> describe_model(const CheckpointFiles& files) {
  auto description = files.gguf() != nullptr ? describe_gguf(files) : describe_hf(files);
  if (!description) return tl::unexpected(with_context(std::move(description).error(), files.name()));
  description->config.architecture = description->architecture->name;
  return description;
}

}  // namespace vernier
