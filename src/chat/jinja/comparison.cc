// Equality, order and membership of template values.
#include <algorithm>

#include "chat/jinja/builders.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

/// Exact for all 64-bit integers where long double has 64 bits of precision.
long double exact_number(const Value& value) {
  if (value.is(Kind::kFloat)) return value.as_real();
  return value.is(Kind::kBigInteger) ? static_cast<long double>(value.as_big())
                                     : static_cast<long double>(value.as_int());
}

Result<bool> equal_sequences(Runtime& runtime, const SequenceObject& left, const SequenceObject& right) {
  if (left.type != right.type || left.items.size() != right.items.size()) return false;
  for (std::size_t i = 0; i < left.items.size(); ++i) {
    VN_ASSIGN(const bool same, equal(runtime, left.items[i], right.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& runtime, const DictObject& left, const DictObject& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    VN_ASSIGN(const DictObject::Entry* found, find_entry(runtime, right, key));
    if (found == nullptr) return false;
    VN_ASSIGN(const bool same, equal(runtime, value, found->second));
    if (!same) return false;
  }
  return true;
}

std::string_view symbol(CompareOp op) {
  static constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<std::size_t>(op)];
}

/// -1, 0 or 1; an error names `op`. Not for NaN, which callers treat first.
Result<int> order(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  VN_TRY(runtime.budget.spend());
  if (left.is_undefined()) return error("{}", left.undefined_message());
  if (right.is_undefined()) return error("{}", right.undefined_message());
  if (left.is_number() && right.is_number()) {
    const long double a = exact_number(left);
    const long double b = exact_number(right);
    return a < b ? -1 : (a > b ? 1 : 0);
  }
  if (left.is_string() && right.is_string()) {
    VN_TRY(runtime.budget.spend_text(std::min(left.text().size(), right.text().size())));
    const int result = left.text().compare(right.text());  // the order of UTF-8 is the order of code points
    return result < 0 ? -1 : (result > 0 ? 1 : 0);
  }
  if (left.is(Kind::kSequence) && right.is(Kind::kSequence) && left.sequence().type == right.sequence().type &&
      (left.sequence().type == SequenceType::kList || left.sequence().type == SequenceType::kTuple)) {
    const auto& a = left.sequence().items;
    const auto& b = right.sequence().items;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      VN_ASSIGN(const bool same, equal(runtime, a[i], b[i]));
      if (!same) return order(runtime, op, a[i], b[i]);
    }
    return a.size() < b.size() ? -1 : (a.size() > b.size() ? 1 : 0);
  }
  return error("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(left), type_name(right));
}

bool is_nan(const Value& value) { return value.is(Kind::kFloat) && value.as_real() != value.as_real(); }

}  // namespace

Result<bool> equal(Runtime& runtime, const Value& left, const Value& right) {
  VN_TRY(runtime.budget.spend());
  if (left.is_number() && right.is_number()) {
    if (left.is_int() && right.is_int()) return left.as_int() == right.as_int();
    return exact_number(left) == exact_number(right);
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      if (left.text().size() != right.text().size()) return false;
      VN_TRY(runtime.budget.spend_text(left.text().size()));
      return left.text() == right.text();
    case Kind::kSequence: return equal_sequences(runtime, left.sequence(), right.sequence());
    case Kind::kDict: return equal_dicts(runtime, left.dict(), right.dict());
    default: return left.same_as(right);
  }
}

Result<bool> less(Runtime& runtime, const Value& left, const Value& right) {
  return compare(runtime, CompareOp::kLess, left, right);
}

Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual: return equal(runtime, left, right);
    case CompareOp::kNotEqual: {
      VN_ASSIGN(const bool same, equal(runtime, left, right));
      return !same;
    }
    case CompareOp::kIn: return contains(runtime, right, left);
    case CompareOp::kNotIn: {
      VN_ASSIGN(const bool inside, contains(runtime, right, left));
      return !inside;
    }
    default: break;
  }
  if (left.is_number() && right.is_number() && (is_nan(left) || is_nan(right))) return false;
  VN_ASSIGN(const int result, order(runtime, op, left, right));
  switch (op) {
    case CompareOp::kLess: return result < 0;
    case CompareOp::kLessEqual: return result <= 0;
    case CompareOp::kGreater: return result > 0;
    default: return result >= 0;
  }
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  VN_TRY(runtime.budget.spend());
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) {
        return error("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      VN_TRY(runtime.budget.spend_text(container.text().size()));
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict: {
      VN_ASSIGN(const DictObject::Entry* found, find_entry(runtime, container.dict(), item));
      return found != nullptr;
    }
    case Kind::kSequence:
    case Kind::kIterator: {
      VN_ASSIGN(const Value items, iterate(runtime, container));
      for (const Value& candidate : items.sequence().items) {
        VN_ASSIGN(const bool same, equal(runtime, candidate, item));
        if (same) return true;
      }
      return false;
    }
    default: return error("argument of type '{}' is not iterable", type_name(container));
  }
}

}  // namespace vernier::jinja
