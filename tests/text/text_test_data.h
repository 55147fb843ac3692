// Reads tests/data/text: the hard strings, and files of one JSON value a line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/gguf_vocabulary.h"

namespace vernier {

/// The whole of tests/data/text/NAME; a missing file fails the test and gives "".
std::string read_text_data(std::string_view name);
/// Calls `use` with each line of tests/data/text/NAME.
void for_each_json_line(std::string_view name, const std::function<void(const Json&)>& use);
/// The strings of strings.jsonl by number; some are ill-formed UTF-8.
const std::vector<std::string>& hard_strings();
/// An array of integers as ids.
std::vector<std::int32_t> ids_of(const Json& array);
/// What a GGUF file would hold for a byte-pair tokenizer.json.
GgufVocabulary to_gguf(std::string_view tokenizer_json, std::string model, std::string pre);

}  // namespace vernier
