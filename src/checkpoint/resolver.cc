#include "checkpoint/resolver.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_set>

#include "checkpoint/config_check.h"
#include "checkpoint/ledger.h"
#include "checkpoint/leftovers.h"
#include "checkpoint/missing.h"
#include "checkpoint/tensor_groups.h"
#include "format/format_list.h"

namespace vernier {
namespace {

bool is_matrix(TensorKind kind) {
  return kind != TensorKind::kVector && kind != TensorKind::kConvolution && kind != TensorKind::kCacheScale;
}

bool is_half(StoredAs slice) { return slice != StoredAs::kWhole && slice != StoredAs::kPerExpert; }

/// Without dimensions of 1, which writers of vectors add and leave out as they like.
std::vector<std::uint64_t> squeezed(std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](std::uint64_t dim) { return dim != 1; });
  return result;
}

/// A name with a place for an expert's number, filled again and again without building it anew.
class ExpertName {
 public:
  explicit ExpertName(std::string_view pattern) {
    const std::size_t at = pattern.find("{e}");
    has_number_ = at != std::string_view::npos;
    front_ = pattern.substr(0, at);
    back_ = has_number_ ? pattern.substr(at + 3) : std::string_view{};
    text_ = std::string(front_);
  }

  [[nodiscard]] bool has_number() const { return has_number_; }
  /// The name of expert `e`; valid until the next call.
  std::string_view operator()(std::uint64_t e) {
    if (!has_number_) return text_;
    char digits[24];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), e).ptr;
    text_.resize(front_.size());
    text_.append(digits, static_cast<std::size_t>(end - digits));
    text_.append(back_);
    return text_;
  }

 private:
  std::string_view front_;
  std::string_view back_;
  std::string text_;
  bool has_number_ = false;
};

class Resolver {
 public:
  explicit Resolver(const ResolveInput& input)
      : input_(input),
        groups_(input.records),
        ledger_(input.records),
        missing_(input.records, input.by_name, groups_),
        config_check_(input, ledger_),
        plan_(std::make_unique<ResolvedCheckpoint::Impl>()) {
    context_.records = input.records;
    context_.gguf = input.gguf;
    context_.block_rows = input.config->block_rows();
    context_.block_cols = input.config->block_cols();
    context_.has_divisors = groups_.any(TensorPart::kDivisor);
  }

  Result<std::unique_ptr<ResolvedCheckpoint::Impl>> run() {
    VN_TRY(refuse_foreign(input_, groups_));
    // Vectors first: what they take ("x.scale" of a router) is no part of a matrix.
    for (const TensorSpec& spec : input_.specs) {
      if (!is_matrix(spec.kind) && is_wanted(spec)) VN_TRY(match_vector(spec));
    }
    for (const TensorSpec& spec : input_.specs) {
      if (is_matrix(spec.kind)) match_matrix(spec);
    }
    VN_TRY(settle_tied());
    missing_.report(has_mtp_, ledger_);
    account_leftovers(input_, groups_, ledger_);
    config_check_.warn_if_undeclared(groups_);
    plan_->accounting = ledger_.finish(dialect_of(input_, groups_));
    plan_->accounting.mtp_layers = static_cast<std::int64_t>(mtp_layers_.size());
    plan_->accounting.expert_bytes = expert_bytes();
    keep_used_records();
    return std::move(plan_);
  }

 private:
  // --- vectors ---

  bool is_wanted(const TensorSpec& spec) const {
    return spec.kind != TensorKind::kCacheScale || input_.options.use_cache_scales;
  }

  Status match_vector(const TensorSpec& spec) {
    std::uint32_t found = kNoTensor;
    const Spelling* found_as = nullptr;
    for (const Spelling& spelling : spec.spellings) {
      const std::uint32_t record = find_vector(spelling);
      if (record == kNoTensor) continue;
      if (found != kNoTensor) {
        refuse_second(found, record, spec);
        continue;
      }
      found = record;
      found_as = &spelling;
    }
    if (found == kNoTensor) {
      if (!absorbed_) missing_.add(spec, {});
      absorbed_ = false;
      return {};
    }
    absorbed_ = false;
    const TensorRecord& record = input_.records[found];
    if (spec.kind == TensorKind::kConvolution) VN_TRY(refuse_other_axis_order(spec, record));
    if (!has_vector_shape(record, spec, found_as->stored_as)) {
      ledger_.refuse(found, Error{ErrorCode::kCorrupt,
                                  fmt::format("{} ({}) is {}, expected {}", label(record), record.type_name,
                                              shape_text(record.shape), vector_shape_text(spec, found_as->stored_as)),
                                  {}});
      return {};
    }
    if (!record.dtype || !find_plain_format(*record.dtype)) {
      ledger_.refuse(found, Error{ErrorCode::kCorrupt,
                                  fmt::format("{} is {}, expected F32, F16 or BF16", label(record), record.type_name),
                                  {}});
      return {};
    }
    const bool is_cache_scale = spec.kind == TensorKind::kCacheScale;
    const bool is_booked =
        is_cache_scale ? ledger_.use_cache_scale(found) : ledger_.use_vector(found, found_as->stored_as);
    if (!is_booked) return {};
    vectors_.insert(found);
    note_role(spec);
    VectorPlan plan{.role = spec.role,
                    .record = found,
                    .slice = found_as->stored_as,
                    .inner = spec.shape.empty() ? 1 : spec.shape.back(),
                    .add = spec.add,
                    .is_cache_scale = is_cache_scale};
    for (std::size_t i = 0; i + 1 < spec.shape.size(); ++i) plan.outer *= spec.shape[i];
    plan_->vectors.push_back(std::move(plan));
    return {};
  }

  std::uint32_t find_vector(const Spelling& spelling) {
    if (spelling.suffixed) return groups_.parts(spelling.name)[TensorPart::kWeight];
    const std::uint32_t record = groups_.find(spelling.name);
    if (record == kNoTensor || !input_.gguf || groups_.part(record) != TensorPart::kSidecar) return record;
    // Beside a weight that takes a second-level scale, this is one: the model's own factor has been folded into it.
    const std::uint32_t weight = groups_.parts(groups_.stem(record))[TensorPart::kWeight];
    if (weight == kNoTensor || !takes_sidecar(input_.records[weight])) return record;
    absorbed_ = true;
    return kNoTensor;
  }

  static std::vector<std::uint64_t> stored_vector_shape(const TensorSpec& spec, StoredAs slice) {
    std::vector<std::uint64_t> shape = spec.shape;
    if (is_half(slice) && !shape.empty()) shape.back() *= 2;
    return shape;
  }

  static bool has_vector_shape(const TensorRecord& record, const TensorSpec& spec, StoredAs slice) {
    if (spec.kind == TensorKind::kCacheScale && record.shape.size() > 1) return false;
    return squeezed(record.shape) == squeezed(stored_vector_shape(spec, slice));
  }

  static std::string vector_shape_text(const TensorSpec& spec, StoredAs slice) {
    return shape_text(stored_vector_shape(spec, slice));
  }

  /// MLX stores convolutions as [channels, width, 1]. Its unquantised exports look right otherwise, and are not: their
  /// norms already hold what the model adds to them.
  Status refuse_other_axis_order(const TensorSpec& spec, const TensorRecord& record) const {
    const std::vector<std::uint64_t> wanted = squeezed(spec.shape);
    const bool is_mlx = record.shape.size() == 3 && wanted.size() == 2 && wanted[1] > 1 &&
                        record.shape == std::vector<std::uint64_t>{wanted[0], wanted[1], 1};
    if (!is_mlx) return {};
    return fail(ErrorCode::kUnsupported,
                "{} is {}, expected [{}, 1, {}]: this is an MLX export, whose norm weights differ from the original's",
                label(record), shape_text(record.shape), wanted[0], wanted[1]);
  }

  // --- matrices ---

  /// The parts of the weight that `spelling` names (for `expert`, if it has a place for one).
  TensorParts find_parts(const Spelling& spelling, std::string_view name) const {
    TensorParts parts = groups_.parts(name);
    if (spelling.suffixed) {
      parts[TensorPart::kOther] = kNoTensor;
    } else if (!parts.has(TensorPart::kOther)) {
      parts[TensorPart::kOther] = groups_.find(name);
    }
    // What a vector of the model has taken is not a scale of this weight.
    for (const TensorPart part : {TensorPart::kSidecar, TensorPart::kWeightSidecar}) {
      if (parts.has(part) && vectors_.contains(parts[part])) parts[part] = kNoTensor;
    }
    return parts;
  }

  void match_matrix(const TensorSpec& spec) {
    const Spelling* found_as = nullptr;
    std::uint32_t found = kNoTensor;
    for (const Spelling& spelling : spec.spellings) {
      const std::uint32_t codes = first_codes(spelling, 1);
      if (codes == kNoTensor) continue;
      if (found_as != nullptr) {
        refuse_second(found, codes, spec);
        continue;
      }
      found_as = &spelling;
      found = codes;
    }
    // A bank whose first expert is missing is still a bank.
    for (const Spelling& spelling : spec.spellings) {
      if (found_as == nullptr && first_codes(spelling, num_experts(spec)) != kNoTensor) found_as = &spelling;
    }
    if (found_as == nullptr) return missing_.add(spec, {});
    take_matrix(spec, *found_as);
  }

  static std::uint64_t num_experts(const TensorSpec& spec) { return spec.shape.size() == 3 ? spec.shape[0] : 0; }

  std::uint32_t first_codes(const Spelling& spelling, std::uint64_t experts) const {
    ExpertName name(spelling.name);
    for (std::uint64_t e = 0; e < (name.has_number() ? experts : 1); ++e) {
      const std::uint32_t codes = codes_of(find_parts(spelling, name(e)));
      if (codes != kNoTensor) return codes;
    }
    return kNoTensor;
  }

  void take_matrix(const TensorSpec& spec, const Spelling& spelling) {
    MatrixPlan plan;
    plan.role = spec.role;
    plan.slice = spelling.stored_as;
    const std::size_t rank = spec.shape.size();
    plan.shape = {num_experts(spec), rank < 2 ? 1 : spec.shape[rank - 2], rank == 0 ? 1 : spec.shape[rank - 1]};
    plan.tied_to = spec.tied_to;

    MatrixShape stored = plan.shape;
    if (is_half(plan.slice)) stored.rows *= 2;
    ExpertName name(spelling.name);
    const std::uint64_t count = name.has_number() ? std::max<std::uint64_t>(plan.shape.experts, 1) : 1;
    if (name.has_number()) stored.experts = 0;
    plan.stored.reserve(count);
    note_role(spec);
    const std::string first(name(0));
    for (std::uint64_t e = 0; e < count; ++e) {
      const std::string_view module = name(e);
      const TensorParts parts = find_parts(spelling, module);
      if (codes_of(parts) == kNoTensor) {
        missing_.add(spec, module);
      } else if (take_stored(spec, parts, stored, plan)) {
        config_check_.check(spec, module, first, plan.stored.back());
      }
    }
    if (plan.stored.size() == count) plan_->matrices.push_back(std::move(plan));
  }

  /// Recognises one stored weight and adds it to the plan, or says why it can't be used.
  bool take_stored(const TensorSpec& spec, const TensorParts& parts, const MatrixShape& shape, MatrixPlan& plan) {
    Result<StoredMatrix> matrix = recognise(parts, shape, context_);
    if (!matrix) {
      const std::uint32_t codes = codes_of(parts);
      if (!ledger_.is_open(codes)) return false;  // the other half of a fused tensor has said so already
      for (std::size_t part = 0; part < kNumTensorParts; ++part) {
        if (is_weight_scale(static_cast<TensorPart>(part))) ledger_.refuse_quietly(parts.records[part]);
      }
      ledger_.refuse(codes, std::move(matrix).error());
      return false;
    }
    if (spec.tied_to.empty() && !ledger_.use(*matrix, plan.slice)) return false;
    plan.stored.push_back(*matrix);
    return true;
  }

  void refuse_second(std::uint32_t first, std::uint32_t second, const TensorSpec& spec) {
    ledger_.refuse(second,
                   Error{ErrorCode::kCorrupt,
                         fmt::format("{} and '{}' are both stored for {}; expected one of them",
                                     label(input_.records[second]), escape(input_.records[first].name), spec.role),
                         {}});
  }

  void note_role(const TensorSpec& spec) {
    plan_->roles.insert(spec.role);
    has_mtp_ = has_mtp_ || spec.mtp;
    if (spec.mtp && spec.layer >= 0) mtp_layers_.insert(spec.layer);
  }

  /// Gate and up may be halves of one tensor, which counts once.
  [[nodiscard]] std::uint64_t expert_bytes() const {
    std::vector<bool> seen(input_.records.size());
    std::uint64_t bytes = 0;
    for (const MatrixPlan& plan : plan_->matrices) {
      if (plan.shape.experts == 0) continue;
      for (const StoredMatrix& stored : plan.stored) {
        for (const std::uint32_t record : {stored.codes, stored.scales}) {
          if (record == kNoTensor || seen[record]) continue;
          seen[record] = true;
          bytes += input_.records[record].extent.size;
        }
      }
    }
    return bytes;
  }

  // --- tied heads ---

  Status settle_tied() {
    for (MatrixPlan& plan : plan_->matrices) {
      if (plan.tied_to.empty()) continue;
      const auto original = std::find_if(plan_->matrices.begin(), plan_->matrices.end(),
                                         [&](const MatrixPlan& other) { return other.role == plan.tied_to; });
      bool is_copy = false;
      if (original != plan_->matrices.end() && original->stored.size() == 1 && plan.stored.size() == 1) {
        VN_ASSIGN(is_copy, same_bytes(plan.stored[0], original->stored[0], input_.records, /*sampled=*/true));
      }
      const StoredMatrix& stored = plan.stored[0];
      if (is_copy) {
        for (const std::uint32_t record : {stored.codes, stored.scales, stored.outer}) {
          if (record != kNoTensor) ledger_.ignore(record, "tied-head");
        }
        plan_->roles.erase(plan.role);
        continue;
      }
      ledger_.warn(fmt::format("{} differs from '{}', which the configuration says it repeats; it is used as stored",
                               label(input_.records[stored.codes]), plan.tied_to));
      for (const StoredMatrix& matrix : plan.stored) ledger_.use(matrix, plan.slice);
      plan.tied_to.clear();
    }
    return {};
  }

  /// Copies the records that plans name, so that the result doesn't depend on `records`.
  void keep_used_records() {
    std::vector<std::uint32_t> places(input_.records.size(), kNoTensor);
    const auto keep = [&](std::uint32_t& record) {
      if (record == kNoTensor) return;
      std::uint32_t& place = places[record];
      if (place == kNoTensor) {
        place = static_cast<std::uint32_t>(plan_->records.size());
        plan_->records.push_back(input_.records[record]);
      }
      record = place;
    };
    for (MatrixPlan& plan : plan_->matrices) {
      for (StoredMatrix& stored : plan.stored) {
        keep(stored.codes);
        keep(stored.scales);
        keep(stored.outer);
      }
    }
    for (VectorPlan& plan : plan_->vectors) keep(plan.record);
  }

  const ResolveInput& input_;
  TensorGroups groups_;
  Ledger ledger_;
  MissingList missing_;
  ConfigCheck config_check_;
  DialectContext context_;
  std::unique_ptr<ResolvedCheckpoint::Impl> plan_;
  std::unordered_set<std::uint32_t> vectors_;  // records that vectors have taken
  bool has_mtp_ = false;
  std::set<std::int32_t> mtp_layers_;
  bool absorbed_ = false;  // the vector just looked for is some weight's second-level scale
};

}  // namespace

Result<std::unique_ptr<ResolvedCheckpoint::Impl>> resolve_records(const ResolveInput& input) {
  return Resolver(input).run();
}

}  // namespace vernier
