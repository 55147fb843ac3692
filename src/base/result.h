// Result<T>: the value-or-error type of everything inside Vernier, and the two macros that pass errors on.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "vernier/error.h"

namespace vernier {

template <class T>
using Result = tl::expected<T, Error>;

/// A Result without a value: success or an Error.
using Status = Result<void>;

/// Makes the error half of a Result: `return fail(ErrorCode::kCorrupt, "tensor '{}' has no data", escape(name));`
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), {}});
}

/// As fail(), with a line that says what to do next.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail_with_hint(ErrorCode code, std::string hint, fmt::format_string<Args...> format,
                                                   Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), std::move(hint)});
}

/// Prefixes the message of an error on its way up: "model.gguf: tensor 'x': ...". A message that begins with the
/// context already stays as it is.
[[nodiscard]] Error with_context(Error error, std::string_view context);

/// Text from an untrusted source made fit for one line of a message: control characters, quotes, backslashes and
/// ill-formed UTF-8 are escaped, and the result is cut (with "...") after `max_bytes` bytes of output.
[[nodiscard]] std::string escape(std::string_view text, std::size_t max_bytes = 128);

}  // namespace vernier

#define VN_CONCAT_INNER(a, b) a##b
#define VN_CONCAT(a, b) VN_CONCAT_INNER(a, b)

/// Evaluates a Status or Result expression and returns its error from the enclosing function.
#define VN_TRY(expression)                                               \
  do {                                                                   \
    auto vn_status = (expression);                                       \
    if (!vn_status) return tl::unexpected(std::move(vn_status).error()); \
  } while (false)

/// Declares or assigns `target` from a Result expression, or returns its error.
#define VN_ASSIGN(target, expression)                                                                              \
  auto VN_CONCAT(vn_result_, __LINE__) = (expression);                                                             \
  if (!VN_CONCAT(vn_result_, __LINE__)) return tl::unexpected(std::move(VN_CONCAT(vn_result_, __LINE__)).error()); \
  target = *std::move(VN_CONCAT(vn_result_, __LINE__))
