#include "text/text_test_data.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/test_data.h"

namespace vernier {
namespace {

std::string decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t value = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    value = value << 6U | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(value >> static_cast<unsigned>(bits) & 0xFFU);
  }
  return bytes;
}

std::string string_of(const Json& line) {
  if (const Json* repeat = line.find("repeat")) {
    std::string text;
    for (std::int64_t i = 0; i < line.find("count")->as_int64(); ++i) text += repeat->as_string();
    return text;
  }
  const Json* text = line.find("text");
  return text != nullptr ? text->as_string() : decode_base64(line.find("base64")->as_string());
}

}  // namespace

std::string read_text_data(std::string_view name) {
  std::ifstream file(test::test_data("text/") + std::string(name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

void for_each_json_line(std::string_view name, const std::function<void(const Json&)>& use) {
  const std::string text = read_text_data(name);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const auto line = parse_json(std::string_view(text).substr(begin, end - begin));
    ASSERT_TRUE(line) << name << ": " << line.error().message;
    use(*line);
    begin = end + 1;
  }
}

const std::vector<std::string>& hard_strings() {
  static const std::vector<std::string> strings = [] {
    std::vector<std::string> all;
    for_each_json_line("strings.jsonl", [&](const Json& line) { all.push_back(string_of(line)); });
    return all;
  }();
  return strings;
}

std::vector<std::int32_t> ids_of(const Json& array) {
  std::vector<std::int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  return ids;
}

GgufVocabulary to_gguf(std::string_view tokenizer_json, std::string model, std::string pre) {
  const Json file = *parse_json(tokenizer_json);
  GgufVocabulary gguf;
  gguf.model = std::move(model);
  gguf.pre = std::move(pre);
  const auto set = [&](std::size_t id, const std::string& text, GgufTokenType type) {
    if (id >= gguf.tokens.size()) {
      gguf.tokens.resize(id + 1);
      gguf.token_types.resize(id + 1, static_cast<std::int32_t>(GgufTokenType::kNormal));
    }
    gguf.tokens[id] = text;
    gguf.token_types[id] = static_cast<std::int32_t>(type);
  };
  for (const auto& [text, id] : file.find("model")->find("vocab")->as_object()) {
    set(static_cast<std::size_t>(id.as_int64()), text, GgufTokenType::kNormal);
  }
  for (const Json& added : file.find("added_tokens")->as_array()) {
    set(static_cast<std::size_t>(added.find("id")->as_int64()), added.find("content")->as_string(),
        added.find("special")->as_bool() ? GgufTokenType::kControl : GgufTokenType::kUserDefined);
  }
  for (const Json& merge : file.find("model")->find("merges")->as_array()) {
    gguf.merges.push_back(merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
  }
  return gguf;
}

}  // namespace vernier
