// Errors of the public API: what went wrong, and a minimal value-or-error type.
// This header depends on the standard library alone and is the root of all error handling in Vernier.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace vernier {

/// The kind of a failure. Each front end maps kinds to its own codes (exit status, HTTP status) in one table.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< the caller asked for something that makes no sense
  kNotFound,         ///< a file, model or tensor that should exist does not
  kCorrupt,          ///< a file or request violates its own format
  kUnsupported,      ///< well-formed, but not something Vernier runs
  kOutOfMemory,      ///< memory or another system limit
  kDevice,           ///< a device or a feature of it is unavailable
  kIo,               ///< the operating system failed to read or write
  kOverloaded,       ///< try again later
  kCancelled,        ///< stopped on request
  kInternal,         ///< a bug in Vernier
};

/// The name of a code, for logs and JSON: "invalid_argument", "not_found", ...
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

/// A failure. `message` is one line without a trailing full stop that names the culprit, what was found and what was
/// expected; text taken from files in it is already escaped and cut. `hint` is empty or one line: what to do next.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string hint;
};

/// A value or an Error. Minimal on purpose: the public API must not leak third-party headers.
template <class T>
class Outcome {
 public:
  Outcome(T value) : state_(std::move(value)) {}
  Outcome(Error error) : state_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] T& value() { return std::get<T>(state_); }
  [[nodiscard]] const T& value() const { return std::get<T>(state_); }
  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace vernier
