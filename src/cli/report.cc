#include "cli/report.h"

#include <cstdio>

namespace vernier::cli {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kExitUsage;
    case ErrorCode::kNotFound: return 66;
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported: return kExitBadInput;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kOverloaded: return 71;
    case ErrorCode::kDevice: return 69;
    case ErrorCode::kIo: return 74;
    case ErrorCode::kCancelled: return kExitInterrupted;
    case ErrorCode::kInternal: return 70;
  }
  return 70;
}

namespace {

void print_error(std::string_view message, std::string_view hint) {
  std::fprintf(stderr, "vernier: error: %.*s\n", static_cast<int>(message.size()), message.data());
  if (!hint.empty()) std::fprintf(stderr, "%.*s\n", static_cast<int>(hint.size()), hint.data());
}

}  // namespace

int report(const Error& error) {
  print_error(error.message, error.hint);
  return exit_status(error.code);
}

int report_usage(std::string_view message, std::string_view hint) {
  print_error(message, hint);
  return kExitUsage;
}

void warn(std::string_view message) {
  std::fprintf(stderr, "vernier: warning: %.*s\n", static_cast<int>(message.size()), message.data());
}

bool print(std::string_view text) { return std::fwrite(text.data(), 1, text.size(), stdout) == text.size(); }

}  // namespace vernier::cli
