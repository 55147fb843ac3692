// Builds safetensors files for tests, right ones and wrong ones.
//
//     SafetensorsBuilder file;
//     file.f32_tensor("model.norm.weight", {4}, {1, 1, 1, 1});
//     file.tensor("w.weight", "U8", {2, 8}, std::string(16, '\x21'));
//     auto read = SafetensorsFile::open(file.file("model.safetensors"));
//
// A wrong file: `SafetensorsBuilder::from_header(json, data)` takes any header text; `data_offsets` of a tensor can be
// set after adding it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "support/bytes.h"

namespace vernier::test {

class SafetensorsBuilder {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::string data;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> offsets;
  };

  /// Adds a tensor; the reference stays good.
  Tensor& tensor(std::string_view name, std::string_view dtype, std::vector<std::uint64_t> shape, std::string data) {
    tensors_.push_back({std::string(name), std::string(dtype), std::move(shape), std::move(data), {}});
    return tensors_.back();
  }
  Tensor& f32_tensor(std::string_view name, std::vector<std::uint64_t> shape, const std::vector<float>& values) {
    return tensor(name, "F32", std::move(shape), bytes_of(std::span(values)));
  }
  /// Sets an entry of __metadata__.
  SafetensorsBuilder& metadata(std::string_view key, std::string_view value) {
    metadata_.emplace_back(key, value);
    return *this;
  }

  /// The header's JSON text, padded to a multiple of 8.
  [[nodiscard]] std::string header() const {
    std::string json = "{";
    if (!metadata_.empty()) {
      json += "\"__metadata__\":{";
      for (const auto& [key, value] : metadata_) {
        if (json.back() != '{') json += ',';
        append_json_string(json, key);
        json += ':';
        append_json_string(json, value);
      }
      json += '}';
    }
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      if (json.size() > 1) json += ',';
      append_json_string(json, tensor.name);
      json += ":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
      for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        json += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
      }
      const std::uint64_t begin = tensor.offsets ? tensor.offsets->first : offset;
      const std::uint64_t end = tensor.offsets ? tensor.offsets->second : offset + tensor.data.size();
      json += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
      offset += tensor.data.size();
    }
    json += '}';
    json.resize((json.size() + 7) / 8 * 8, ' ');
    return json;
  }
  [[nodiscard]] std::string build() const {
    std::string data;
    for (const Tensor& tensor : tensors_) data += tensor.data;
    return from_header(header(), data);
  }
  [[nodiscard]] std::shared_ptr<const MappedFile> file(std::string name = "test.safetensors") const {
    return as_file(build(), std::move(name));
  }
  void save(const std::filesystem::path& path) const { test::save(path, build()); }

  /// A file with any header text. `length`, if given, is written instead of the text's.
  [[nodiscard]] static std::string from_header(std::string_view json, std::string_view data,
                                               std::optional<std::uint64_t> length = {}) {
    std::string out;
    append_number(out, length.value_or(json.size()));
    out += json;
    out += data;
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::deque<Tensor> tensors_;
};

/// The text of a model.safetensors.index.json: tensor name -> shard file name.
[[nodiscard]] inline std::string shard_index_text(const std::map<std::string, std::string>& weight_map) {
  JsonObject map;
  for (const auto& [tensor, shard] : weight_map) map.set(tensor, Json(shard));
  JsonObject metadata;
  metadata.set("total_size", Json(0));
  JsonObject index;
  index.set("metadata", Json(std::move(metadata)));
  index.set("weight_map", Json(std::move(map)));
  return to_json_text(Json(std::move(index)));
}

}  // namespace vernier::test
