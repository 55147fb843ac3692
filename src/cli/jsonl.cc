#include "cli/jsonl.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/report.h"

namespace vernier::cli {
namespace {

Json error_value(const Error& error) {
  JsonObject object;
  object.set("error", error.message);
  return object;
}

}  // namespace

int answer_lines(const std::function<Result<Json>(const Json&)>& answer) {
  char* line = nullptr;
  std::size_t capacity = 0;
  ssize_t length = 0;
  int status = kExitDone;
  while ((length = getline(&line, &capacity, stdin)) >= 0) {
    std::string_view text(line, static_cast<std::size_t>(length));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    const auto request = parse_json(text);
    const auto result = request ? answer(*request) : Result<Json>(tl::unexpected(request.error()));
    if (!print(to_json_text(result ? *result : error_value(result.error())) + "\n")) {
      status = report(Error{ErrorCode::kIo, "cannot write to standard output", {}});
      break;
    }
  }
  std::free(line);
  return status;
}

}  // namespace vernier::cli
