#include "checkpoint/config_check.h"

namespace vernier {
namespace {

// A second, loose look at the lists is slow, and a checkpoint that needs many is wrong as a whole.
constexpr std::size_t kMaxSecondLooks = 200;

}  // namespace

bool ConfigCheck::agrees(const Declared& declared, Scheme found) const {
  if (declared.scheme != found) return false;
  const std::int64_t group = scheme_group_size(found);
  return group == 0 || declared.group_size == 0 || declared.group_size == group;
}

void ConfigCheck::check(const TensorSpec& spec, std::string_view module, std::string_view first,
                        const StoredMatrix& stored) {
  if (spec.kind != TensorKind::kTrunkLinear || spec.mtp || input_.gguf || !input_.config->declared()) return;
  const Scheme found = scheme_of(stored.format);
  // What holds for a bank's first expert mostly holds for all: the lists are asked again only where it doesn't.
  if (guessed_for_ != first) {
    guessed_for_ = first;
    guess_ = input_.config->about(first);
  }
  if (!guess_ || agrees(*guess_, found)) return;
  const std::optional<Declared> declared = module == first ? guess_ : input_.config->about(module);
  if (!declared || agrees(*declared, found)) return;
  const bool is_scheme_wrong = declared->scheme != found;
  if (is_scheme_wrong && second_looks_ < kMaxSecondLooks) {
    ++second_looks_;
    if (input_.config->may_mean(module, found)) return;
  }
  report(module, *declared, found, stored);
}

void ConfigCheck::report(std::string_view module, const Declared& declared, Scheme found, const StoredMatrix& stored) {
  const TensorRecord& record = input_.records[stored.codes];
  const std::string& source = input_.config->source();
  std::string message;
  if (declared.scheme == found) {
    message = fmt::format("{} has groups of {} values a scale, but {} declares a group_size of {}", label(record),
                          scheme_group_size(found), source, declared.group_size);
  } else if (found == Scheme::kPlain) {
    message = fmt::format("{} is unquantised ({}), but {} declares {} for '{}'", label(record), record.type_name,
                          source, scheme_name(declared.scheme), escape(module));
  } else if (declared.scheme == Scheme::kPlain) {
    message = fmt::format("{} is {}, but {} leaves '{}' unquantised", label(record), scheme_name(found), source,
                          escape(module));
  } else {
    message = fmt::format("{} is {}, but {} declares {} for '{}'", label(record), scheme_name(found), source,
                          scheme_name(declared.scheme), escape(module));
  }
  for (const std::uint32_t part : {stored.scales, stored.outer}) ledger_.refuse_quietly(part);
  ledger_.refuse(stored.codes, Error{ErrorCode::kCorrupt, std::move(message), {}});
}

void ConfigCheck::warn_if_undeclared(const TensorGroups& groups) const {
  if (input_.gguf || input_.config->declared()) return;
  for (const TensorPart part : {TensorPart::kScale, TensorPart::kInverseScale, TensorPart::kBlockScales}) {
    if (!groups.any(part)) continue;
    ledger_.warn("the checkpoint holds quantised weights, but neither config.json nor hf_quant_config.json says so");
    return;
  }
}

}  // namespace vernier
