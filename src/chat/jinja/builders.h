// Builders of strings, lists and dicts that pay the budget before they allocate. A builder that ran out ignores what
// follows and reports at finish(), so that the code using it needs no error checks of its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "chat/jinja/value.h"

namespace vernier::jinja {

class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  /// Appends well-formed UTF-8.
  void append(std::string_view text) {
    if (make_room(text.size())) text_.append(text);
  }
  void append_repeated(std::string_view text, std::size_t times);
  void append_char(char32_t code_point);
  void pad(char32_t fill, std::size_t count);
  /// Pays for capacity; false when the budget is exhausted.
  bool make_room(std::size_t bytes);
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  /// The string as a value; the builder is empty afterwards.
  [[nodiscard]] Result<Value> finish();
  /// The plain text, for the end of a render.
  [[nodiscard]] Result<std::string> take();

 private:
  Runtime& runtime_;
  std::string text_;
  Charge charge_;
  Status status_;
};

class ListBuilder {
 public:
  explicit ListBuilder(Runtime& runtime, SequenceType type = SequenceType::kList) : runtime_(runtime), type_(type) {}
  void push(Value value);
  /// Appends a string, or fails the builder.
  void push_string(std::string_view text);
  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] std::vector<Value>& items() { return items_; }
  [[nodiscard]] Result<Value> finish(std::string label = {});

 private:
  Runtime& runtime_;
  SequenceType type_;
  std::vector<Value> items_;
  Charge charge_;
  Status status_;
  std::size_t depth_ = 0;
};

class DictBuilder {
 public:
  explicit DictBuilder(Runtime& runtime) : runtime_(runtime) {}
  /// Sets or replaces; keys that Python can't hash fail the builder.
  void set(Value key, Value value);
  void set_string(std::string_view key, Value value);
  /// Inserts unless the key is there; tells whether it did.
  [[nodiscard]] Result<bool> add(Value key, Value value);
  [[nodiscard]] Result<Value> finish();

 private:
  [[nodiscard]] Status insert(Value key, Value value);
  [[nodiscard]] Status append(Value key, Value value);

  Runtime& runtime_;
  std::shared_ptr<DictObject> dict_;
  Charge charge_;
  Status status_;
  std::size_t depth_ = 0;
};

/// The entry of `dict` whose key equals `key` in Python's sense, or null. Pays for the search.
[[nodiscard]] Result<const DictObject::Entry*> find_entry(Runtime& runtime, const DictObject& dict, const Value& key);

/// All items of an iterable value as a sequence: a list of code points for strings, the keys for dicts, what's left of
/// an iterator (which is then used up).
[[nodiscard]] Result<Value> iterate(Runtime& runtime, const Value& value);

/// A JSON value as a template value.
[[nodiscard]] Result<Value> from_json(Runtime& runtime, const Json& json);

}  // namespace vernier::jinja
