#include "cli/reference_file.h"

#include <cstring>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"

namespace vernier::cli {
namespace {

Result<const JsonArray*> array_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr || !value->is_array()) return fail(ErrorCode::kCorrupt, "'{}' must be an array", key);
  return &value->as_array();
}

Result<std::vector<std::int32_t>> id_array(const Json& object, std::string_view key) {
  VN_ASSIGN(const JsonArray* list, array_member(object, key));
  std::vector<std::int32_t> ids;
  for (const Json& id : *list) {
    if (!id.is_integer() || id.is_big_unsigned() || id.as_int64() < 0 || id.as_int64() > INT32_MAX) {
      return fail(ErrorCode::kCorrupt, "{}[{}] must be a token id", key, ids.size());
    }
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  }
  return ids;
}

Result<ReferencePrompt> read_prompt(const Json& object) {
  ReferencePrompt prompt;
  VN_ASSIGN(prompt.prompt_ids, id_array(object, "prompt_ids"));
  VN_ASSIGN(prompt.greedy_ids, id_array(object, "greedy_ids"));
  if (prompt.prompt_ids.empty() || prompt.greedy_ids.empty()) {
    return fail(ErrorCode::kCorrupt, "prompt_ids and greedy_ids must not be empty");
  }
  VN_ASSIGN(const JsonArray* margins, array_member(object, "top2_margin"));
  for (const Json& margin : *margins) {
    if (!margin.is_number()) return fail(ErrorCode::kCorrupt, "top2_margin must hold numbers");
    prompt.top2_margin.push_back(margin.as_double());
  }
  if (prompt.top2_margin.size() != prompt.greedy_ids.size()) {
    return fail(ErrorCode::kCorrupt, "top2_margin has {} entries, greedy_ids {}", prompt.top2_margin.size(),
                prompt.greedy_ids.size());
  }
  return prompt;
}

Status read_logits(const std::filesystem::path& path, ReferenceFile& reference) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  VN_ASSIGN(const auto file, MappedFile::open(path));
  VN_ASSIGN(const SafetensorsFile tensors, SafetensorsFile::open(file));
  for (const TensorRecord& record : tensors.tensors()) {
    if (record.name != "logits") continue;
    if (record.dtype != DType::kF32 || record.shape.size() != 2) {
      return fail(ErrorCode::kCorrupt, "{}: logits must be F32 [rows, vocab], found {} {}", file->name(),
                  record.type_name, shape_text(record.shape));
    }
    VN_ASSIGN(const auto bytes, record.bytes());
    reference.vocab_size = record.shape[1];
    reference.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(reference.logits.data(), bytes.data(), bytes.size());
  }
  return {};
}

Result<ReferenceFile> read_json(const std::filesystem::path& path) {
  VN_ASSIGN(const auto file, MappedFile::open(path));
  auto json = parse_json(text_of(file));
  if (!json) return tl::unexpected(with_context(std::move(json).error(), file->name()));
  ReferenceFile reference;
  VN_ASSIGN(const JsonArray* prompts, array_member(*json, "prompts"));
  for (std::size_t i = 0; i < prompts->size(); ++i) {
    auto prompt = read_prompt((*prompts)[i]);
    if (!prompt)
      return tl::unexpected(with_context(std::move(prompt).error(), fmt::format("{}: prompts[{}]", file->name(), i)));
    reference.prompts.push_back(std::move(*prompt));
  }
  if (const Json* mtp = json->find("mtp"); mtp != nullptr) {
    VN_ASSIGN(reference.draft_ids, id_array(*mtp, "draft_ids"));
  }
  return reference;
}

}  // namespace

Result<ReferenceFile> read_reference(const std::filesystem::path& path) {
  VN_ASSIGN(ReferenceFile reference, read_json(path));
  std::filesystem::path logits = path;
  VN_TRY(read_logits(logits.replace_extension(".safetensors"), reference));
  return reference;
}

}  // namespace vernier::cli
