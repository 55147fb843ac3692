// `vernier tokenize` and `vernier detokenize`: text to ids and back, on any file that holds a vocabulary.
#include <memory>

#include "base/base64.h"
#include "cli/jsonl.h"
#include "cli/model_flags.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/verb.h"
#include "vernier/tokenizer.h"

namespace vernier::cli {
namespace {

struct TokenFlags {
  std::string model;
  std::optional<std::string> text;
  std::string file;
  bool no_special = false;
  bool no_parse = false;
  bool skip_special = false;
  bool jsonl = false;
  bool json = false;
};

template <class T>
Result<T> to_result(Outcome<T> outcome) {
  if (!outcome) return tl::unexpected(outcome.error());
  return std::move(outcome.value());
}

Json ids_json(const std::vector<std::int32_t>& ids) {
  JsonArray list;
  for (const std::int32_t id : ids) list.push_back(id);
  return list;
}

/// A boolean member, or `fallback` when it's absent.
Result<bool> flag_of(const Json& request, std::string_view key, bool fallback) {
  const Json* value = request.find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool())
    return fail(ErrorCode::kInvalidArgument, "{} must be a bool, found {}", key, value->type_name());
  return value->as_bool();
}

Status only_fields(const Json& request, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : request.as_object()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return fail(ErrorCode::kInvalidArgument, "unknown field '{}'", escape(key));
    }
  }
  return {};
}

Result<std::string> text_of_request(const Json& request) {
  const Json* text = request.find("text");
  const Json* base64 = request.find("base64");
  if ((text != nullptr) == (base64 != nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "give one of text and base64");
  }
  const Json& value = text != nullptr ? *text : *base64;
  if (!value.is_string()) {
    return fail(ErrorCode::kInvalidArgument, "{} must be a string, found {}", text != nullptr ? "text" : "base64",
                value.type_name());
  }
  return text != nullptr ? Result<std::string>(value.as_string()) : decode_base64(value.as_string());
}

Result<Json> answer_tokenize(const TokenizerFile& tokenizer, const Json& request) {
  std::string text;
  bool add_special = true;
  bool parse_special = true;
  if (request.is_string()) {
    text = request.as_string();
  } else if (request.is_object()) {
    VN_TRY(only_fields(request, {"text", "base64", "add_special", "parse_special"}));
    VN_ASSIGN(text, text_of_request(request));
    VN_ASSIGN(add_special, flag_of(request, "add_special", true));
    VN_ASSIGN(parse_special, flag_of(request, "parse_special", true));
  } else {
    return fail(ErrorCode::kInvalidArgument, "expected a string or an object, found {}", request.type_name());
  }
  VN_ASSIGN(const auto ids, to_result(tokenizer.encode(text, add_special, parse_special)));
  return ids_json(ids);
}

Result<std::vector<std::int32_t>> ids_of(const Json& list) {
  if (!list.is_array()) return fail(ErrorCode::kInvalidArgument, "ids must be an array, found {}", list.type_name());
  std::vector<std::int32_t> ids;
  for (const Json& id : list.as_array()) {
    if (!id.is_integer() || id.is_big_unsigned() || id.as_int64() < INT32_MIN || id.as_int64() > INT32_MAX) {
      return fail(ErrorCode::kInvalidArgument, "ids[{}] must be a token id", ids.size());
    }
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  }
  return ids;
}

Result<Json> answer_detokenize(const TokenizerFile& tokenizer, const Json& request) {
  bool skip_special = false;
  const Json* list = &request;
  if (request.is_object()) {
    VN_TRY(only_fields(request, {"ids", "skip_special"}));
    VN_ASSIGN(skip_special, flag_of(request, "skip_special", false));
    list = request.find("ids");
    if (list == nullptr) return fail(ErrorCode::kInvalidArgument, "ids are missing");
  }
  VN_ASSIGN(const auto ids, ids_of(*list));
  VN_ASSIGN(std::string text, to_result(tokenizer.decode(ids, skip_special)));
  return Json(std::move(text));
}

int tokenize(const TokenFlags& flags) {
  const auto tokenizer = TokenizerFile::open(flags.model);
  if (!tokenizer) return report(tokenizer.error());
  if (flags.jsonl) return answer_lines([&](const Json& request) { return answer_tokenize(*tokenizer, request); });
  const auto text = flags.text ? Result<std::string>(*flags.text) : read_text(flags.file.empty() ? "-" : flags.file);
  if (!text) return report(text.error());
  const auto ids = tokenizer->encode(*text, !flags.no_special, !flags.no_parse);
  if (!ids) return report(ids.error());
  if (flags.json) {
    print(to_json_text(ids_json(*ids)) + "\n");
    return kExitDone;
  }
  for (const std::int32_t id : *ids) print(fmt::format("{:>8}  '{}'\n", id, escape(tokenizer->token_text(id))));
  return kExitDone;
}

int detokenize(const TokenFlags& flags) {
  const auto tokenizer = TokenizerFile::open(flags.model);
  if (!tokenizer) return report(tokenizer.error());
  if (flags.jsonl) return answer_lines([&](const Json& request) { return answer_detokenize(*tokenizer, request); });
  const auto list = flags.text ? Result<std::string>(*flags.text) : read_text(flags.file.empty() ? "-" : flags.file);
  if (!list) return report(list.error());
  const auto ids = parse_ids(*list);
  if (!ids) return report(ids.error());
  const auto text = tokenizer->decode(*ids, flags.skip_special);
  if (!text) return report(text.error());
  print(*text + "\n");
  return kExitDone;
}

}  // namespace

VerbBody declare_tokenize(CLI::App& app) {
  const auto flags = std::make_shared<TokenFlags>();
  add_model_argument(app, flags->model);
  app.add_option("-p,--prompt", flags->text, "the text (default: standard input)")->option_text("TEXT");
  app.add_option("-f,--file", flags->file, "read the text from a file")->option_text("FILE");
  app.add_flag("--no-special", flags->no_special, "don't put BOS and the like around the text");
  app.add_flag("--no-parse-special", flags->no_parse, "leave special tokens in the text as text");
  app.add_flag("--json", flags->json, "print the ids as one JSON array");
  app.add_flag("--jsonl", flags->jsonl,
               "answer each line of standard input: a JSON string, or {\"text\"|\"base64\", \"add_special\", "
               "\"parse_special\"}");
  return [flags] { return tokenize(*flags); };
}

VerbBody declare_detokenize(CLI::App& app) {
  const auto flags = std::make_shared<TokenFlags>();
  add_model_argument(app, flags->model);
  app.add_option("--ids", flags->text, "the ids (default: standard input)")->option_text("1,2,3");
  app.add_option("-f,--file", flags->file, "read the ids from a file")->option_text("FILE");
  app.add_flag("--skip-special", flags->skip_special, "leave special tokens out");
  app.add_flag("--jsonl", flags->jsonl,
               "answer each line of standard input: an array of ids, or {\"ids\", \"skip_special\"}");
  return [flags] { return detokenize(*flags); };
}

}  // namespace vernier::cli
