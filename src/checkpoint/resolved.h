// What resolve() decided and load() carries out: internal to checkpoint/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/quant_dialect.h"
#include "checkpoint/tensor_record.h"
#include "checkpoint/weight_set.h"

namespace vernier {

/// A role's matrices: one, or one an expert.
struct MatrixPlan {
  std::string role;
  StoredAs slice = StoredAs::kWhole;
  MatrixShape shape;  ///< wanted: experts 0 for a single matrix
  /// One entry (a matrix, or a stacked bank), or one an expert.
  std::vector<StoredMatrix> stored;
  /// Not empty: a copy of that role's values, as far as samples tell. Used only if the whole of it differs.
  std::string tied_to;
};

/// A role's values as fp32.
struct VectorPlan {
  std::string role;
  std::uint32_t record = kNoTensor;
  StoredAs slice = StoredAs::kWhole;
  std::uint64_t outer = 1;  ///< wanted extents: [outer, inner], slices along the inner one
  std::uint64_t inner = 0;
  float add = 0.0F;
  bool is_cache_scale = false;  ///< must be positive
};

struct ResolvedCheckpoint::Impl {
  Accounting accounting;
  std::vector<TensorRecord> records;  // those that plans use
  std::vector<MatrixPlan> matrices;
  std::vector<VectorPlan> vectors;
  std::unordered_set<std::string> roles;
  std::vector<std::shared_ptr<const MappedFile>> files;
};

/// True when `name` fits the pattern of an IgnoreRule.
[[nodiscard]] bool matches_ignore_pattern(std::string_view pattern, std::string_view name);

/// The view of one expert (0 for a single matrix) of a stored weight, without its second-level scale.
[[nodiscard]] Result<Weight> make_view(const StoredMatrix& stored, StoredAs slice, std::uint64_t expert,
                                       std::span<const TensorRecord> records);

/// The second-level scale of that view.
[[nodiscard]] Result<OuterScale> make_outer(const StoredMatrix& stored, StoredAs slice, std::uint64_t expert,
                                            std::span<const TensorRecord> records);

/// The values of a record as fp32, exactly; only F32, F16 and BF16.
[[nodiscard]] Result<std::vector<float>> values_of(const TensorRecord& record);

/// Whether two stored weights hold the same bytes. `sampled`: look at a few pages of large ones only.
[[nodiscard]] Result<bool> same_bytes(const StoredMatrix& a, const StoredMatrix& b,
                                      std::span<const TensorRecord> records, bool sampled);

}  // namespace vernier
