// How the command line speaks of failures: exit statuses, and one line on stderr.
#pragma once

#include <string>
#include <string_view>

#include "vernier/error.h"

namespace vernier::cli {

/// Exit statuses beside those that error codes map to.
inline constexpr int kExitDone = 0;
inline constexpr int kExitDiffers = 1;  ///< a comparison failed
inline constexpr int kExitUsage = 64;
inline constexpr int kExitBadInput = 65;
inline constexpr int kExitInterrupted = 130;

/// The exit status of an error (the one table of them).
[[nodiscard]] int exit_status(ErrorCode code);

/// Prints "vernier: error: ..." and the hint, if any, on stderr; returns the exit status.
int report(const Error& error);
/// The same for bad usage.
int report_usage(std::string_view message, std::string_view hint = {});
/// Prints "vernier: warning: ..." on stderr.
void warn(std::string_view message);
/// Writes to stdout; false when the reader has gone.
bool print(std::string_view text);

}  // namespace vernier::cli
