#include "bench/shape_list.h"

#include "embed/shapes_json.h"

namespace vernier::bench {
namespace {

constexpr std::string_view kLayers = "num_hidden_layers";

std::string text_of_member(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

}  // namespace

Result<std::vector<Shape>> shape_list() {
  const auto bytes = embed::shapes_json();
  VN_ASSIGN(const Json list, parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  if (!list.is_object()) return fail(ErrorCode::kInternal, "shapes.json is no object");
  std::vector<Shape> shapes;
  for (const auto& [name, entry] : list.as_object()) {
    const Json* config = entry.find("config");
    if (config == nullptr || !config->is_object()) {
      return fail(ErrorCode::kInternal, "shapes.json: {} has no config", name);
    }
    shapes.push_back({name, text_of_member(entry, "about"), text_of_member(entry, "linear"),
                      text_of_member(entry, "experts"), *config});
  }
  return shapes;
}

Result<Shape> find_shape(std::string_view name) {
  VN_ASSIGN(std::vector<Shape> shapes, shape_list());
  std::string known;
  for (Shape& shape : shapes) {
    if (shape.name == name) return std::move(shape);
    known += (known.empty() ? "" : ", ") + shape.name;
  }
  return fail_with_hint(ErrorCode::kInvalidArgument, "known: " + known, "--synthetic: unknown shape '{}'",
                        escape(name));
}

Result<Json> with_layers(const Json& config, std::int64_t layers) {
  Json cut = config;
  Json* text = cut.as_object().find("text_config");
  JsonObject& object = text != nullptr ? text->as_object() : cut.as_object();
  const Json* stated = object.find(kLayers);
  const std::int64_t all = stated != nullptr && stated->is_integer() ? stated->as_int64() : 0;
  if (layers < 1 || layers > all) {
    return fail(ErrorCode::kInvalidArgument, "--layers must be in 1..{} for this shape, found {}", all, layers);
  }
  object.set(std::string(kLayers), layers);
  if (Json* kinds = object.find("layer_types"); kinds != nullptr && kinds->is_array()) {
    kinds->as_array().resize(static_cast<std::size_t>(layers));
  }
  return cut;
}

}  // namespace vernier::bench
