// The second half of loading: from plans to weights. Second-level scales and vectors are read and checked first, since
// that is quick; then every block is scanned, on all cores.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/thread_pool.h"
#include "checkpoint/resolved.h"
#include "format/validate.h"

namespace vernier {
namespace {

constexpr std::size_t kMaxWarnings = 10;
constexpr std::int64_t kScanBytes = 4LL << 20U;  // about what a thread scans between two looks at the queue

Status first_problem(const Accounting& accounting) {
  if (accounting.problems.empty()) return {};
  Error error = accounting.problems.front();
  if (accounting.problems.size() > 1) {
    error.message += fmt::format(" (and {} more problem{})", accounting.problems.size() - 1,
                                 accounting.problems.size() == 2 ? "" : "s");
  }
  return tl::unexpected(std::move(error));
}

/// The entry of `stored` that holds an expert, and the expert's number within it.
struct Place {
  const StoredMatrix* stored;
  std::uint64_t expert;
};

Place place_of(const MatrixPlan& plan, std::uint64_t expert) {
  if (plan.stored.size() > 1) return {&plan.stored[expert], 0};
  return {&plan.stored[0], expert};
}

/// Rows of a weight that are scanned in one piece, with the tensor to name when they are bad.
struct ScanPiece {
  const Weight* weight;
  const TensorRecord* record;
  std::int64_t row_begin;
  std::int64_t row_end;
};

class Loader {
 public:
  Loader(const ResolvedCheckpoint::Impl& plan, const LoadOptions& options) : plan_(plan), options_(options) {}

  Result<WeightSet> run() {
    VN_TRY(first_problem(plan_.accounting));
    for (const VectorPlan& vector : plan_.vectors) VN_TRY(load_vector(vector));
    weights_.matrices.reserve(plan_.matrices.size());
    for (const MatrixPlan& matrix : plan_.matrices) VN_TRY(load_matrix(matrix));
    if (options_.check_blocks) VN_TRY(scan());
    for (const auto& file : plan_.files) {
      VN_TRY(file->check_unchanged());
      if (file->failed()) return fail(ErrorCode::kIo, "{}: the file lost bytes while it was read", file->name());
    }
    return std::move(weights_);
  }

 private:
  Status load_vector(const VectorPlan& plan) {
    VN_ASSIGN(const std::vector<float> stored, values_of(plan_.records[plan.record]));
    const bool is_second = plan.slice == StoredAs::kSecondHalf || plan.slice == StoredAs::kOddRows;
    const bool is_alternating = plan.slice == StoredAs::kEvenRows || plan.slice == StoredAs::kOddRows;
    const std::uint64_t step = is_alternating ? 2 : 1;
    const std::uint64_t row = stored.size() / plan.outer;
    const std::uint64_t first = !is_second ? 0 : is_alternating ? 1 : plan.inner;
    std::vector<float> values;
    values.reserve(plan.outer * plan.inner);
    for (std::uint64_t o = 0; o < plan.outer; ++o) {
      for (std::uint64_t i = 0; i < plan.inner; ++i) values.push_back(stored[o * row + first + i * step] + plan.add);
    }
    // Not left to check_blocks: a cache without a positive scale yields no numbers at all.
    if (plan.is_cache_scale && !(values.front() > 0.0F && std::isfinite(values.front()))) {
      return fail(ErrorCode::kCorrupt, "{} is {}, expected a positive finite number: it scales the KV cache",
                  label(plan_.records[plan.record]), values.front());
    }
    const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
    if (options_.check_blocks && bad != values.end()) {
      return fail(ErrorCode::kCorrupt, "{}: value {} is {}, expected a finite number",
                  label(plan_.records[plan.record]), bad - values.begin(), *bad);
    }
    weights_.vectors.emplace(plan.role, std::move(values));
    return {};
  }

  Status load_matrix(const MatrixPlan& plan) {
    if (!plan.tied_to.empty()) {
      VN_ASSIGN(const bool is_copy, is_true_copy(plan));
      if (is_copy) return {};
    }
    const std::uint64_t count = std::max<std::uint64_t>(plan.shape.experts, 1);
    std::vector<Weight>& views = weights_.matrices[plan.role];
    views.reserve(count);
    for (std::uint64_t e = 0; e < count; ++e) {
      const auto [stored, expert] = place_of(plan, e);
      VN_ASSIGN(Weight view, make_view(*stored, plan.slice, expert, plan_.records));
      VN_ASSIGN(view.outer, make_outer(*stored, plan.slice, expert, plan_.records));
      const TensorRecord& named = plan_.records[stored->outer == kNoTensor ? stored->codes : stored->outer];
      VN_TRY(check_outer_scale(view, named.name));
      if (outer_scale_is_unusual(view.outer)) warn_unusual(named);
      views.push_back(std::move(view));
      add_pieces(views.back(), plan_.records[stored->codes]);
    }
    return {};
  }

  void warn_unusual(const TensorRecord& scale) {
    if (weights_.warnings.size() == kMaxWarnings) return;
    weights_.warnings.push_back(label(scale) + " is outside 1e-12 .. 1e4: was a divisor stored for a multiplier?");
  }

  /// `weight` stays where it is until the scan is over.
  void add_pieces(const Weight& weight, const TensorRecord& record) {
    const std::int64_t rows = std::max<std::int64_t>(1, kScanBytes / weight.row_stride);
    for (std::int64_t begin = 0; begin < weight.rows; begin += rows) {
      scan_list_.push_back({&weight, &record, begin, std::min(begin + rows, weight.rows)});
    }
  }

  /// Looks at all of what only samples were taken of before.
  [[nodiscard]] Result<bool> is_true_copy(const MatrixPlan& plan) const {
    const auto original = std::find_if(plan_.matrices.begin(), plan_.matrices.end(),
                                       [&](const MatrixPlan& other) { return other.role == plan.tied_to; });
    if (original == plan_.matrices.end()) return false;
    return same_bytes(plan.stored[0], original->stored[0], plan_.records, /*sampled=*/false);
  }

  /// Scans all weights in parallel; the first problem in the order of the plan is the one reported.
  Status scan() const {
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> first_bad{scan_list_.size()};
    const auto work = [&] {
      for (std::size_t i = next++; i < first_bad.load(); i = next++) {
        const ScanPiece& piece = scan_list_[i];
        if (scan_weight_blocks(*piece.weight, piece.row_begin, piece.row_end).bad_blocks == 0) continue;
        std::size_t known = first_bad.load();
        while (i < known && !first_bad.compare_exchange_weak(known, i)) {
        }
      }
    };
    ThreadPool pool(options_.threads);
    pool.parallel_for(pool.size(), [&](std::int64_t, std::int64_t, int) { work(); });
    if (first_bad == scan_list_.size()) return {};
    const ScanPiece& bad = scan_list_[first_bad];
    Status status = check_weight_blocks(*bad.weight, bad.record->name);
    if (!status) return tl::unexpected(with_context(std::move(status).error(), bad.record->file->name()));
    return {};
  }

  const ResolvedCheckpoint::Impl& plan_;
  const LoadOptions& options_;
  WeightSet weights_;
  std::vector<ScanPiece> scan_list_;
};

}  // namespace

Result<WeightSet> load(const ResolvedCheckpoint& resolved, const LoadOptions& options) {
  return Loader(resolved.impl(), options).run();
}

}  // namespace vernier
