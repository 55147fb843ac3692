#include "base/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/utf8.h"

namespace vernier {

// --- objects ---------------------------------------------------------------------------------------------------------

struct JsonObject::Impl {
  static constexpr std::size_t kIndexFrom = 16;  // smaller objects are searched linearly
  std::vector<Member> members;
  std::unordered_map<std::string, std::size_t> index;

  [[nodiscard]] std::size_t position(std::string_view key) const {
    if (!index.empty()) {
      const auto found = index.find(std::string(key));
      return found == index.end() ? members.size() : found->second;
    }
    std::size_t i = 0;
    while (i < members.size() && members[i].first != key) ++i;
    return i;
  }
  Json& append(std::string key, Json value) {
    if (!index.empty()) {
      index.emplace(key, members.size());
    } else if (members.size() + 1 == kIndexFrom) {
      for (std::size_t i = 0; i < members.size(); ++i) index.emplace(members[i].first, i);
      index.emplace(key, members.size());
    }
    members.emplace_back(std::move(key), std::move(value));
    return members.back().second;
  }
};

JsonObject::JsonObject() = default;
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&&) noexcept = default;
JsonObject::JsonObject(const JsonObject& other) : impl_(other.impl_ ? std::make_unique<Impl>(*other.impl_) : nullptr) {}
JsonObject& JsonObject::operator=(const JsonObject& other) {
  if (this != &other) impl_ = other.impl_ ? std::make_unique<Impl>(*other.impl_) : nullptr;
  return *this;
}
std::size_t JsonObject::size() const { return impl_ ? impl_->members.size() : 0; }
const JsonObject::Member* JsonObject::begin() const { return impl_ ? impl_->members.data() : nullptr; }
const JsonObject::Member* JsonObject::end() const {
  return impl_ ? impl_->members.data() + impl_->members.size() : nullptr;
}
const Json* JsonObject::find(std::string_view key) const {
  if (!impl_) return nullptr;
  const std::size_t at = impl_->position(key);
  return at < impl_->members.size() ? &impl_->members[at].second : nullptr;
}
Json* JsonObject::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }
Json& JsonObject::set(std::string key, Json value) {
  if (!impl_) impl_ = std::make_unique<Impl>();
  const std::size_t at = impl_->position(key);
  if (at == impl_->members.size()) return impl_->append(std::move(key), std::move(value));
  return impl_->members[at].second = std::move(value);
}

// --- values ----------------------------------------------------------------------------------------------------------

Json::Json(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = value;
  }
}
std::uint64_t Json::as_uint64() const {
  return is_big_unsigned() ? std::get<std::uint64_t>(value_)
                           : static_cast<std::uint64_t>(std::get<std::int64_t>(value_));
}
double Json::as_double() const {
  if (is_double()) return std::get<double>(value_);
  return is_big_unsigned() ? static_cast<double>(std::get<std::uint64_t>(value_))
                           : static_cast<double>(std::get<std::int64_t>(value_));
}
const Json* Json::find(std::string_view key) const { return is_object() ? as_object().find(key) : nullptr; }
std::string_view Json::type_name() const {
  static constexpr std::string_view kNames[] = {"null",   "bool",   "integer", "integer",
                                                "number", "string", "array",   "object"};
  return kNames[value_.index()];
}

// --- parsing ---------------------------------------------------------------------------------------------------------

namespace {

/// Builds a Json from the event stream of nlohmann's parser, which keeps its own stack on the heap.
class Builder {
 public:
  explicit Builder(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(std::int64_t value) { return put(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return put(Json(value)); }
  bool number_float(double value, const std::string&) { return put(Json(value)); }
  bool string(std::string& value) { return put(Json(std::move(value))); }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool key(std::string& name) {
    if (open_.back().as_object().find(name) != nullptr) {
      error_ = fmt::format("duplicate key '{}'", escape(name));
      return false;
    }
    keys_.back() = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return open(Json(JsonObject())); }
  bool start_array(std::size_t) { return open(Json(JsonArray())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    // nlohmann's text reads "[json.exception.parse_error.101] parse error at line 1, column 2: REASON; last read: ..."
    std::string_view text = problem.what();
    if (const auto colon = text.find(": "); colon != std::string_view::npos) text.remove_prefix(colon + 2);
    error_ = fmt::format("{} at byte {}", escape(text, 200), position > 0 ? position - 1 : 0);
    return false;
  }

  [[nodiscard]] const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  bool open(Json container) {
    if (open_.size() >= max_depth_) {
      error_ = fmt::format("nesting deeper than {} levels", max_depth_);
      return false;
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return put(std::move(done));
  }
  bool put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().as_array().push_back(std::move(value));
    } else {
      open_.back().as_object().set(std::move(keys_.back()), std::move(value));
    }
    return true;
  }

  std::size_t max_depth_;
  Json root_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::kCorrupt, "JSON of {} bytes exceeds the limit of {}", text.size(), limits.max_bytes);
  }
  if (text.starts_with("\xEF\xBB\xBF"))
    return fail(ErrorCode::kCorrupt, "JSON begins with a byte order mark at byte 0");
  Builder builder(limits.max_depth);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok) return fail(ErrorCode::kCorrupt, "invalid JSON: {}", builder.error());
  return builder.take();
}

// --- writing ---------------------------------------------------------------------------------------------------------

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char ch = decode_utf8(text, at);
    switch (ch.code_point) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (ch.code_point < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(ch.code_point));
        } else {
          append_utf8(out, ch.code_point);
        }
    }
    at += ch.size;
  }
  out.push_back('"');
}

namespace {

/// Keeps a point or an exponent, so that it is read again as the floating-point number that it was: "-0" would come
/// back as the integer 0.
std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// Values are written by us and shallow, or were parsed under a depth limit, so recursion is bounded.
void write(std::string& out, const Json& value, int indent, int level) {
  const auto new_line = [&](int depth) {
    if (indent <= 0) return;
    out.push_back('\n');
    out.append(static_cast<std::size_t>(indent * depth), ' ');
  };
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_big_unsigned()) {
    out += fmt::format("{}", value.as_uint64());
  } else if (value.is_integer()) {
    out += fmt::format("{}", value.as_int64());
  } else if (value.is_double()) {
    out += number_text(value.as_double());
  } else if (value.is_string()) {
    append_json_string(out, value.as_string());
  } else if (value.is_array()) {
    out.push_back('[');
    bool first = true;
    for (const Json& item : value.as_array()) {
      if (!first) out.push_back(',');
      first = false;
      new_line(level + 1);
      write(out, item, indent, level + 1);
    }
    if (!first) new_line(level);
    out.push_back(']');
  } else {
    out.push_back('{');
    bool first = true;
    for (const auto& [key, item] : value.as_object()) {
      if (!first) out.push_back(',');
      first = false;
      new_line(level + 1);
      append_json_string(out, key);
      out += indent > 0 ? ": " : ":";
      write(out, item, indent, level + 1);
    }
    if (!first) new_line(level);
    out.push_back('}');
  }
}

}  // namespace

std::string to_json_text(const Json& value, int indent) {
  std::string out;
  write(out, value, indent, 0);
  return out;
}

}  // namespace vernier
