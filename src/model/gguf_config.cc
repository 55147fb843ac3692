#include "model/gguf_config.h"

#include <string>

#include "checkpoint/gguf_metadata.h"

namespace vernier {
namespace {

constexpr std::uint64_t kMaxElements = 1024;
constexpr std::size_t kMaxText = 256;

template <class Values>
Json to_array(const Values& values) {
  JsonArray array;
  array.reserve(values.size());
  for (const auto value : values) array.emplace_back(static_cast<typename Values::value_type>(value));
  return Json(std::move(array));
}

Result<Json> array_value(const GgufMetadata& metadata, const GgufEntry& entry) {
  const bool small = entry.count <= kMaxElements;
  switch (entry.element_type) {
    case GgufType::kBool: {
      if (!small) break;
      VN_ASSIGN(const auto flags, metadata.find_bools(entry.key));
      JsonArray array;
      for (const bool flag : *flags) array.emplace_back(flag);
      return Json(std::move(array));
    }
    case GgufType::kF32: {
      if (!small) break;
      VN_ASSIGN(const auto floats, metadata.find_floats(entry.key));
      JsonArray array;
      for (const float value : *floats) array.emplace_back(static_cast<double>(value));
      return Json(std::move(array));
    }
    case GgufType::kString:
    case GgufType::kF64:
    case GgufType::kArray: break;
    default: {
      if (!small) break;
      VN_ASSIGN(const auto integers, metadata.find_integers(entry.key));
      return to_array(*integers);
    }
  }
  return Json(entry.count);
}

Result<Json> value_of(const GgufMetadata& metadata, const GgufEntry& entry) {
  switch (entry.type) {
    case GgufType::kArray: return array_value(metadata, entry);
    case GgufType::kString: {
      VN_ASSIGN(const auto text, metadata.find_string(entry.key));
      return Json(text->substr(0, kMaxText));
    }
    case GgufType::kBool: {
      VN_ASSIGN(const auto flag, metadata.find_bool(entry.key));
      return Json(*flag);
    }
    case GgufType::kF32:
    case GgufType::kF64: {
      VN_ASSIGN(const auto number, metadata.find_f64(entry.key));
      return Json(*number);
    }
    case GgufType::kU64: {
      VN_ASSIGN(const auto number, metadata.find_u64(entry.key));
      return Json(*number);
    }
    default: {
      VN_ASSIGN(const auto number, metadata.find_i64(entry.key));
      return Json(*number);
    }
  }
}

}  // namespace

Result<Json> json_from_gguf(const GgufMetadata& metadata) {
  VN_ASSIGN(const auto architecture, metadata.find_string("general.architecture"));
  const std::string own_prefix = std::string(architecture.value_or("")) + ".";
  JsonObject object;
  for (const GgufEntry& entry : metadata.entries()) {
    const bool wanted = entry.key.starts_with("general.") || entry.key.starts_with("tokenizer.ggml.") ||
                        entry.key.starts_with(own_prefix);
    if (!wanted) continue;
    VN_ASSIGN(Json value, value_of(metadata, entry));
    object.set(std::string(entry.key), std::move(value));
  }
  return Json(std::move(object));
}

}  // namespace vernier
