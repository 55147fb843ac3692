#include "runtime/opened_model.h"

#include <cmath>
#include <cstdlib>

#include "runtime/demo_model.h"

namespace vernier {
namespace {

namespace fs = std::filesystem;

/// Where names that aren't paths are looked up.
std::optional<fs::path> models_folder() {
  if (const char* folder = std::getenv("VERNIER_MODELS"); folder != nullptr && *folder != '\0') return fs::path(folder);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".local" / "share" / "vernier" / "models";
  }
  return std::nullopt;
}

/// `model` itself when it exists, else the entry of that name in the models folder.
Result<fs::path> locate(const fs::path& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return model;
  const auto folder = models_folder();
  const bool plain_name = model.has_filename() && !model.has_parent_path();
  if (folder && plain_name) {
    for (const fs::path& candidate : {*folder / model, *folder / (model.string() + ".gguf")}) {
      if (fs::exists(candidate, ignored)) return candidate;
    }
  }
  return fail_with_hint(ErrorCode::kNotFound,
                        "give a .gguf or .safetensors file, a model folder, 'demo', or a name under $VERNIER_MODELS",
                        "{}: no such model", escape(model.string()));
}

Result<std::string_view> required_string(const GgufMetadata& metadata, std::string_view key) {
  VN_ASSIGN(const auto value, metadata.find_string(key));
  if (!value) return fail(ErrorCode::kUnsupported, "the file has no {}: it holds no tokenizer", key);
  return *value;
}

Result<GgufVocabulary> read_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  VN_ASSIGN(vocabulary.model, required_string(metadata, "tokenizer.ggml.model"));
  VN_ASSIGN(const auto pre, metadata.find_string("tokenizer.ggml.pre"));
  vocabulary.pre = pre.value_or("");
  VN_ASSIGN(const auto tokens, metadata.find_strings("tokenizer.ggml.tokens"));
  if (tokens) {
    for (const std::string_view token : *tokens) vocabulary.tokens.emplace_back(token);
  }
  VN_ASSIGN(const auto merges, metadata.find_strings("tokenizer.ggml.merges"));
  if (merges) {
    for (const std::string_view merge : *merges) vocabulary.merges.emplace_back(merge);
  }
  VN_ASSIGN(auto scores, metadata.find_floats("tokenizer.ggml.scores"));
  if (scores) vocabulary.scores = std::move(*scores);
  VN_ASSIGN(const auto types, metadata.find_integers("tokenizer.ggml.token_type"));
  if (types) {
    for (const std::int64_t type : *types) {
      // Outside int32 means outside the known types too; -1 is refused by the tokenizer with the position.
      vocabulary.token_types.push_back(type >= 0 && type <= 1000 ? static_cast<std::int32_t>(type) : -1);
    }
  }
  const std::pair<std::string_view, std::optional<std::int64_t> GgufVocabulary::*> ids[] = {
      {"bos", &GgufVocabulary::bos_id},         {"eos", &GgufVocabulary::eos_id},
      {"eot", &GgufVocabulary::eot_id},         {"eom", &GgufVocabulary::eom_id},
      {"unknown", &GgufVocabulary::unknown_id}, {"padding", &GgufVocabulary::padding_id},
      {"fim_pad", &GgufVocabulary::fim_pad_id}, {"fim_rep", &GgufVocabulary::fim_rep_id},
      {"fim_sep", &GgufVocabulary::fim_sep_id}};
  for (const auto& [name, member] : ids) {
    VN_ASSIGN(vocabulary.*member, metadata.find_i64(fmt::format("tokenizer.ggml.{}_token_id", name)));
  }
  VN_ASSIGN(vocabulary.add_bos, metadata.find_bool("tokenizer.ggml.add_bos_token"));
  VN_ASSIGN(vocabulary.add_eos, metadata.find_bool("tokenizer.ggml.add_eos_token"));
  VN_ASSIGN(vocabulary.add_space_prefix, metadata.find_bool("tokenizer.ggml.add_space_prefix"));
  return vocabulary;
}

/// A side file parsed as JSON, or null when it isn't there.
Result<Json> side_json(const CheckpointFiles& files, SideFile which) {
  VN_ASSIGN(const auto file, files.side_file(which));
  if (!file) return Json();
  auto json = parse_json(text_of(file));
  if (!json) return tl::unexpected(with_context(std::move(json).error(), side_file_name(which)));
  return json;
}

Result<std::optional<float>> optional_number(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->as_double())) {
    return fail(ErrorCode::kCorrupt, "generation_config.json: {} must be a number, found {}", key, value->type_name());
  }
  return static_cast<float>(value->as_double());
}

Result<std::vector<std::int64_t>> id_list(const Json& value) {
  std::vector<std::int64_t> ids;
  const auto add = [&](const Json& id) {
    if (!id.is_integer() || id.is_big_unsigned()) return false;
    ids.push_back(id.as_int64());
    return true;
  };
  bool good = true;
  if (value.is_array()) {
    for (const Json& id : value.as_array()) good = good && add(id);
  } else if (!value.is_null()) {
    good = add(value);
  }
  if (!good)
    return fail(ErrorCode::kCorrupt, "generation_config.json: eos_token_id must be an integer or a list of them");
  return ids;
}

}  // namespace

Result<CheckpointFiles> open_checkpoint(const fs::path& model, const OpenOptions& options) {
  if (model.empty() || model == "demo") return CheckpointFiles::from_gguf(demo_model(), options);
  VN_ASSIGN(const fs::path path, locate(model));
  return CheckpointFiles::open(path, options);
}

Result<OpenedModel> open_model(const fs::path& model, const OpenOptions& options, DType kv_dtype) {
  VN_ASSIGN(CheckpointFiles files, open_checkpoint(model, options));
  return describe_checkpoint(std::move(files),
                             {.lenient = options.lenient, .use_cache_scales = kv_dtype == DType::kF8E4M3});
}

Result<OpenedModel> describe_checkpoint(CheckpointFiles files, const ResolveOptions& options) {
  const std::string name = files.name();
  auto description = describe_model(files);
  if (!description) return tl::unexpected(with_context(std::move(description).error(), name));
  const auto specs = description->architecture->tensors(description->config);
  const auto ignored = description->architecture->ignored(description->config);
  auto resolved = resolve(files, specs, ignored, options);
  if (!resolved) return tl::unexpected(with_context(std::move(resolved).error(), name));
  return OpenedModel{std::move(files), std::move(*description), std::move(*resolved)};
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const CheckpointFiles& files) {
  if (files.gguf() != nullptr) {
    VN_ASSIGN(GgufVocabulary vocabulary, read_vocabulary(*files.gguf()));
    return Tokenizer::from_vocabulary(std::move(vocabulary));
  }
  VN_ASSIGN(const auto tokenizer, files.side_file(SideFile::kTokenizer));
  if (!tokenizer) return fail(ErrorCode::kUnsupported, "{}: no tokenizer.json beside the weights", files.name());
  VN_ASSIGN(const auto config, files.side_file(SideFile::kTokenizerConfig));
  return Tokenizer::from_json(text_of(tokenizer), text_of(config));
}

Result<std::string> open_chat_template(const CheckpointFiles& files) {
  if (files.gguf() != nullptr) {
    VN_ASSIGN(const auto source, files.gguf()->find_string("tokenizer.chat_template"));
    return std::string(source.value_or(""));
  }
  VN_ASSIGN(const auto file, files.side_file(SideFile::kChatTemplate));
  if (file) return std::string(text_of(file));
  VN_ASSIGN(const Json config, side_json(files, SideFile::kTokenizerConfig));
  const Json* source = config.find("chat_template");
  if (source == nullptr) return std::string();
  if (source->is_string()) return source->as_string();
  // Older files hold a list of named templates; "default" is the one for chatting.
  if (source->is_array()) {
    for (const Json& entry : source->as_array()) {
      const Json* name = entry.find("name");
      const Json* text = entry.find("template");
      if (name != nullptr && text != nullptr && name->is_string() && text->is_string() &&
          name->as_string() == "default") {
        return text->as_string();
      }
    }
  }
  return std::string();
}

Result<GenerationConfig> open_generation_config(const CheckpointFiles& files) {
  GenerationConfig result;
  VN_ASSIGN(const Json config, side_json(files, SideFile::kGenerationConfig));
  if (config.is_null()) return result;
  if (!config.is_object()) return fail(ErrorCode::kCorrupt, "generation_config.json: expected an object");
  VN_ASSIGN(result.defaults.temperature, optional_number(config, "temperature"));
  VN_ASSIGN(result.defaults.top_p, optional_number(config, "top_p"));
  VN_ASSIGN(const auto top_k, optional_number(config, "top_k"));
  if (top_k && *top_k >= 0.0F && *top_k < 1e6F) result.defaults.top_k = static_cast<std::int32_t>(*top_k);
  VN_ASSIGN(result.defaults.repeat_penalty, optional_number(config, "repetition_penalty"));
  if (const Json* sample = config.find("do_sample"); sample != nullptr && sample->is_bool()) {
    result.defaults.do_sample = sample->as_bool();
  }
  if (const Json* eos = config.find("eos_token_id"); eos != nullptr) {
    VN_ASSIGN(result.eos_ids, id_list(*eos));
  }
  return result;
}

}  // namespace vernier
