// Bulk use of a verb: one JSON value a line in, one a line out, in order.
#pragma once

#include <functional>

#include "base/json.h"

namespace vernier::cli {

/// Answers each line of standard input. A line that can't be answered yields {"error":"..."} and the run goes on.
/// Returns the exit status.
int answer_lines(const std::function<Result<Json>(const Json&)>& answer);

}  // namespace vernier::cli
