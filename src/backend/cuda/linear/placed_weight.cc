// Weights on their way to the GPU.
#include "backend/cuda/linear/placed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/fragment/group_source.h"
#include "backend/cuda/fragment/pack_source.h"
#include "backend/cuda/fragment/weight_kind.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/pack.h"
#include "backend/cuda/linear/record.h"
#include "format/format_list.h"
#include "format/grid_scale.h"
#include "format/stored_rows.h"

namespace vernier::cuda {
namespace {

/// Copies rows so that they lie one behind the other.
Status upload_rows(const CudaContext& context, std::byte* device, const StoredRows& host) {
  const std::byte* from = host.data;
  std::vector<std::byte> gathered;
  if (host.stride != host.row_bytes) {
    gathered.resize(static_cast<std::size_t>(host.size()));
    for (std::int64_t r = 0; r < host.rows; ++r) {
      std::memcpy(gathered.data() + r * host.row_bytes, host.data + r * host.stride,
                  static_cast<std::size_t>(host.row_bytes));
    }
    from = gathered.data();
  }
  // From pageable memory this returns once the bytes have left it.
  VN_CUDA(cudaMemcpyAsync(device, from, static_cast<std::size_t>(host.size()), cudaMemcpyHostToDevice, context.stream));
  return {};
}

/// Factors of rows lie in host memory one behind the other.
StoredRows factor_rows(const Weight& host) {
  if (!host.outer.per_row()) return {};
  return {reinterpret_cast<const std::byte*>(host.outer.values.data()), 1, host.rows * 4, host.rows * 4};
}

/// All but the pointers.
WeightRef describe(const Weight& host) {
  WeightRef ref;
  ref.row_stride = code_rows(host).row_bytes;
  ref.scale_stride = scale_rows(host).row_bytes;
  ref.first_row = host.first_row % host.scale_block_rows;
  ref.rows = static_cast<std::int32_t>(host.rows);
  ref.cols = static_cast<std::int32_t>(host.cols);
  ref.scale_block_rows = host.scale_block_rows;
  ref.scale_block_cols = host.scale_block_cols;
  ref.scale_dtype = host.scale_dtype;
  ref.kind = weight_kind(host.format, host.layout);
  ref.divides = host.outer.divides;
  if (!host.outer.empty()) ref.factor = host.outer.values[0];
  visit_format(host.format, [&]<class F>(std::type_identity<F>) {
    ref.unit_values = unit_values<F>(host.layout);
    ref.terms = bf16_terms<F>();
    ref.has_grid = format_info(host.format).has_grid && host.layout == WeightLayout::kSeparate;
  });
  return ref;
}

std::int64_t aligned(std::int64_t size) { return (size + 255) / 256 * 256; }

/// Nothing is in the memory between the end of a part and where the next one may begin: records are copied whole, also
/// to files.
Status clear_gap(const CudaContext& context, std::byte* at, std::int64_t end) {
  const std::int64_t gap = aligned(end) - end;
  if (gap > 0) VN_CUDA(cudaMemsetAsync(at + end, 0, static_cast<std::size_t>(gap), context.stream));
  return {};
}

/// A weight's parts on their way into device memory.
struct Upload {
  StoredRows codes;
  StoredRows scales;
  StoredRows factors;
  [[nodiscard]] std::int64_t size() const { return aligned(codes.size()) + aligned(scales.size()); }
};

/// Both parts as published, from `at` on; returns the reference with its pointers.
Result<WeightRef> upload_as_published(const CudaContext& context, const Upload& upload, WeightRef ref, std::byte* at) {
  ref.codes = at;
  VN_TRY(upload_rows(context, at, upload.codes));
  if (upload.scales.rows > 0) {
    ref.scales = at + aligned(upload.codes.size());
    VN_TRY(upload_rows(context, at + aligned(upload.codes.size()), upload.scales));
  }
  return ref;
}

/// How the weight may be packed; whether its numbers fit is known afterwards.
Packing packing_of(const Weight& host) {
  const Packing packing = visit_format(host.format, []<class F>(std::type_identity<F>) {
    return GroupSource<F>::kPacking != Packing::kNone ? GroupSource<F>::kPacking : packing_for<F>();
  });
  const bool odd_grid = packing == Packing::kE4M3ByGrid && host.scale_block_cols != kGridCols;
  return odd_grid ? Packing::kNone : packing;
}

/// The same of a weight in host memory whose numbers decide as well: many a file has BF16's as F32.
Packing best_packing(const Weight& host, const StoredRows& codes) {
  const Packing packing = packing_of(host);
  if (packing != Packing::kF32) return packing;
  std::vector<std::uint32_t> row(static_cast<std::size_t>(host.cols));
  for (std::int64_t r = 0; r < codes.rows; ++r) {
    std::memcpy(row.data(), codes.data + r * codes.stride, static_cast<std::size_t>(codes.row_bytes));
    std::uint32_t any = 0;
    for (const std::uint32_t bits : row) any |= bits;
    if (!is_upper_half(any)) return Packing::kF32;
  }
  return Packing::kBF16;
}

/// Grid scales, [rows, cols] as they were but in fp32.
std::vector<float> grid_of(const Weight& host, const StoredRows& scales) {
  std::vector<float> grid;
  for (std::int64_t g = 0; g < scales.rows; ++g) {
    for (std::int64_t i = 0; i < scales_per_row(host); ++i) {
      grid.push_back(load_grid_scale(host.scale_dtype, scales.data + g * scales.stride, i));
    }
  }
  return grid;
}

std::int64_t packed_code_bytes(const PackedShape& shape) {
  if (has_groups(shape.packing)) return shape.tiles * shape.chunks * group_shape(shape.packing).chunk_bytes();
  return shape.code_bytes();
}

/// bf16 bits of -(128 + centre): what kernels add to codes made into 128 + code.
std::uint32_t group_bias(std::int16_t kind) {
  return visit_format(static_cast<FormatId>(kind / kLayoutCount), []<class F>(std::type_identity<F>) {
    if constexpr (GroupSource<F>::kPacking != Packing::kNone) {
      return static_cast<std::uint32_t>(BF16Codec::encode(-128.0F - static_cast<float>(GroupSource<F>::kCentre)));
    }
    return std::uint32_t{0};
  });
}

/// Sets what kernels multiply packed weights' scales and sums with. False where a scale is out of bf16's range with it.
bool set_scaling(const PackReport& report, WeightRef& ref) {
  if (report.unfit != 0) return false;
  constexpr std::uint32_t kBothHalves = 0x10001;
  if (ref.packing == Packing::kE2M1ByE4M3) {
    ref.scale_bias = kScaleBias * kBothHalves;
    ref.rescale = 0x1p8F;
  } else if (ref.packing == Packing::kE2M1ByE8M0) {
    // Scale 2^(code - 127) becomes 2^(code - 1 - offset): the largest must stay finite, and the smallest code times
    // 2^-126 times it a normal number.
    const int offset = std::max(16, report.largest + 126 - 254);
    if (report.largest > 254 || report.smallest < 2 + offset) return false;
    ref.scale_bias = static_cast<std::uint32_t>(126 - offset) * 128U * kBothHalves;
    ref.rescale = std::ldexp(1.0F, offset);
  } else if (has_groups(ref.packing)) {
    ref.scale_bias = group_bias(ref.kind) * kBothHalves;
  }
  return true;
}

/// What a weight takes once packed, and its grid.
struct PackPlan {
  PackedShape shape;
  std::vector<float> grid;  ///< fp32 scales of Packing::kE4M3ByGrid
  std::int64_t scale_bytes = 0;
  [[nodiscard]] std::int64_t scales_at() const { return aligned(packed_code_bytes(shape)); }
  [[nodiscard]] std::int64_t size() const { return scales_at() + aligned(scale_bytes); }
};

PackPlan plan_packing(const Weight& host, const Upload& upload, Packing packing) {
  PackPlan plan;
  plan.shape = packed_shape(packing, host.rows, host.cols);
  const bool has_grid = plan.shape.packing == Packing::kE4M3ByGrid;
  if (has_grid) plan.grid = grid_of(host, upload.scales);
  plan.scale_bytes = has_grid ? static_cast<std::int64_t>(plan.grid.size()) * 4 : plan.shape.scale_bytes();
  return plan;
}

/// Where stored bytes lie on the device, where they go, and what their packing reports.
struct PackSite {
  WeightRef published = {};
  std::byte* to = nullptr;
  PackReport* report = nullptr;
};

/// Enqueues the packing and describes its result, but for what the report decides.
Status enqueue_packing(const CudaContext& context, const Weight& host, const PackPlan& plan, const PackSite& site,
                       PlacedWeight& placed) {
  PackJob job;
  job.format = host.format;
  job.layout = host.layout;
  job.shape = plan.shape;
  job.from = site.published;
  job.codes = site.to;
  job.scales = site.to + plan.scales_at();
  job.report = site.report;
  if (!plan.grid.empty()) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(plan.grid.data());
    VN_TRY(upload_rows(context, job.scales, {bytes, 1, plan.scale_bytes, plan.scale_bytes}));
  }
  VN_CUDA(pack_weight(job, context.stream));
  WeightRef& ref = placed.ref;
  ref = describe(host);
  ref.packing = plan.shape.packing;
  ref.units = static_cast<std::int32_t>(plan.shape.units);
  ref.codes = job.codes;
  ref.scales = job.scales;
  if (!plan.grid.empty()) {
    ref.scale_dtype = DType::kF32;
    ref.scale_stride = scales_per_row(host) * 4;
  }
  placed.row_factors_at = plan.size();
  return {};
}

/// Uploads and packs. Null where the numbers don't allow it.
Result<std::shared_ptr<PlacedWeight>> place_packed(CudaContext& context, const Weight& host, const Upload& upload,
                                                   Packing packing) {
  const PackPlan plan = plan_packing(host, upload, packing);
  auto placed = std::make_shared<PlacedWeight>();
  placed->size_bytes = plan.size() + upload.factors.size();
  VN_ASSIGN(placed->bytes, allocate_weight_bytes(context, static_cast<std::size_t>(placed->size_bytes)));
  // The published bytes are needed only until they are packed.
  constexpr std::int64_t kReportBytes = 256;
  VN_ASSIGN(void* const published,
            context.scratch.get(ScratchSlot::kPublishedWeight, static_cast<std::size_t>(upload.size() + kReportBytes)));
  auto* const memory = static_cast<std::byte*>(published);
  PackReport report;
  VN_TRY(
      upload_rows(context, memory, {reinterpret_cast<const std::byte*>(&report), 1, sizeof(report), sizeof(report)}));
  PackSite site = {.to = placed->bytes.data, .report = reinterpret_cast<PackReport*>(memory)};
  VN_ASSIGN(site.published, upload_as_published(context, upload, describe(host), memory + kReportBytes));
  VN_TRY(enqueue_packing(context, host, plan, site, *placed));
  VN_TRY(clear_gap(context, site.to, packed_code_bytes(plan.shape)));
  VN_TRY(clear_gap(context, site.to, plan.scales_at() + plan.scale_bytes));
  VN_CUDA(cudaMemcpyAsync(&report, site.report, sizeof(report), cudaMemcpyDeviceToHost, context.stream));
  VN_CUDA(cudaStreamSynchronize(context.stream));
  if (!set_scaling(report, placed->ref)) return nullptr;
  return placed;
}

Result<std::shared_ptr<PlacedWeight>> place_as_published(const CudaContext& context, const Weight& host,
                                                         const Upload& upload) {
  auto placed = std::make_shared<PlacedWeight>();
  const std::int64_t size = upload.size() + upload.factors.size();
  VN_ASSIGN(placed->bytes, allocate_weight_bytes(context, static_cast<std::size_t>(size)));
  VN_ASSIGN(placed->ref, upload_as_published(context, upload, describe(host), placed->bytes.data));
  VN_TRY(clear_gap(context, placed->bytes.data, upload.codes.size()));
  VN_TRY(clear_gap(context, placed->bytes.data, aligned(upload.codes.size()) + upload.scales.size()));
  placed->row_factors_at = upload.size();
  placed->size_bytes = size;
  return placed;
}

/// `ref` for the same bytes, which lie at `record` now.
WeightRef at_record(WeightRef ref, const Upload& upload, std::byte* record) {
  ref.codes = record;
  if (upload.scales.rows > 0) ref.scales = record + aligned(upload.codes.size());
  return ref;
}

/// The weight of which `placed` lies at `at`, but for its row factors, which follow.
Result<Weight> finish_placing(const CudaContext& context, const Weight& host, std::byte* at,
                              std::shared_ptr<PlacedWeight> placed) {
  const StoredRows factors = factor_rows(host);
  if (factors.rows > 0) {
    VN_TRY(upload_rows(context, at + placed->row_factors_at, factors));
  } else {
    placed->row_factors_at = -1;
  }
  Weight result = host;
  result.codes = placed->ref.codes;
  result.row_stride = placed->ref.row_stride;
  result.scales = placed->ref.scales;
  result.scale_stride = placed->ref.scale_stride;
  result.first_row = placed->ref.first_row;
  result.owner = std::move(placed);
  return result;
}

}  // namespace

Result<Weight> place_weight(CudaContext& context, const Weight& host) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (host.rows <= 0 || host.cols <= 0 || host.rows > kMost || host.cols > kMost) {
    return fail(ErrorCode::kUnsupported, "a weight of {} x {} is too large for the GPU's kernels", host.rows,
                host.cols);
  }
  const Upload upload = {.codes = code_rows(host), .scales = scale_rows(host), .factors = factor_rows(host)};
  if (upload.codes.row_bytes == 0) return fail(ErrorCode::kInternal, "place: the format has no such layout");
  std::shared_ptr<PlacedWeight> placed;
  if (const Packing packing = best_packing(host, upload.codes); packing != Packing::kNone) {
    VN_ASSIGN(placed, place_packed(context, host, upload, packing));
  }
  if (placed == nullptr) {
    VN_ASSIGN(placed, place_as_published(context, host, upload));
  }
  std::byte* const at = placed->bytes.data;
  return finish_placing(context, host, at, std::move(placed));
}

namespace {

Upload upload_of(const Weight& host) {
  return {.codes = code_rows(host), .scales = scale_rows(host), .factors = factor_rows(host)};
}

Status copy_rows_within(const CudaContext& context, std::byte* to, const std::byte* from, const StoredRows& like) {
  if (like.size() == 0) return {};
  const auto row = static_cast<std::size_t>(like.row_bytes);
  return cuda_status(cudaMemcpy2DAsync(to, row, from, static_cast<std::size_t>(like.stride), row,
                                       static_cast<std::size_t>(like.rows), cudaMemcpyDeviceToDevice, context.stream),
                     "cudaMemcpy2DAsync");
}

/// Enqueues a record's layout: packed, or as published.
Status lay_out(const CudaContext& context, const RecordPlacer::Part& part, const PublishedRecord& published,
               Packing packing, PackReport* report, PlacedWeight& placed) {
  const Weight& host = *part.host;
  const Upload upload = upload_of(host);
  if (packing != Packing::kNone) {
    WeightRef ref = describe(host);
    ref.codes = published.codes;
    ref.row_stride = upload.codes.stride;
    ref.scales = published.scales;
    ref.scale_stride = upload.scales.stride;
    const PackPlan plan = plan_packing(host, upload, packing);
    return enqueue_packing(context, host, plan, {ref, part.record, report}, placed);
  }
  VN_TRY(copy_rows_within(context, part.record, published.codes, upload.codes));
  VN_TRY(copy_rows_within(context, part.record + aligned(upload.codes.size()), published.scales, upload.scales));
  placed.ref = at_record(describe(host), upload, part.record);
  placed.row_factors_at = upload.size();
  return {};
}

}  // namespace

Result<RecordUnderWay> begin_record(const CudaContext& context, const RecordPlacer::Part& part,
                                    const PublishedRecord& published, PackReport* report) {
  auto placed = std::make_shared<PlacedWeight>();
  VN_TRY(lay_out(context, part, published, packing_of(*part.host), report, *placed));
  placed->size_bytes = placed->row_factors_at + factor_rows(*part.host).size();
  return RecordUnderWay{part.host, part.record, std::move(placed)};
}

Status repeat_record(const CudaContext& context, const RecordPlacer::Part& part, const PublishedRecord& published,
                     PackReport* report) {
  const PlacedWeight* const known = placed(*part.known);
  if (known == nullptr) return fail(ErrorCode::kInternal, "a record that isn't known");
  PlacedWeight again;
  VN_TRY(lay_out(context, part, published, known->ref.packing, report, again));
  const StoredRows factors = factor_rows(*part.host);
  return factors.rows > 0 ? upload_rows(context, part.record + known->row_factors_at, factors) : Status();
}

Result<Weight> finish_record(const CudaContext& context, const RecordUnderWay& under_way, const PackReport& report) {
  std::shared_ptr<PlacedWeight> placed = under_way.placed;
  const Weight& host = *under_way.host;
  if (placed->ref.packing != Packing::kNone && !set_scaling(report, placed->ref)) {
    const Upload upload = upload_of(host);
    placed = std::make_shared<PlacedWeight>();
    VN_ASSIGN(placed->ref, upload_as_published(context, upload, describe(host), under_way.record));
    placed->row_factors_at = upload.size();
    placed->size_bytes = upload.size() + upload.factors.size();
  }
  return finish_placing(context, host, under_way.record, std::move(placed));
}

std::uint64_t record_bytes(const Weight& host) {
  const Upload upload = upload_of(host);
  std::int64_t size = upload.size();
  if (const Packing packing = packing_of(host); packing != Packing::kNone) {
    const PackedShape shape = packed_shape(packing, host.rows, host.cols);
    const std::int64_t grid_bytes = upload.scales.rows * scales_per_row(host) * 4;
    const std::int64_t scale_bytes = packing == Packing::kE4M3ByGrid ? grid_bytes : shape.scale_bytes();
    size = std::max(size, aligned(packed_code_bytes(shape)) + aligned(scale_bytes));
  }
  return static_cast<std::uint64_t>(size + aligned(upload.factors.size()));
}

Result<Weight> pack_record(CudaContext& context, const Weight& host, std::byte* record) {
  VN_ASSIGN(Weight weight, place_weight(context, host));
  const PlacedWeight* const behind = placed(weight);
  VN_CUDA(cudaMemcpyAsync(record, weight.codes, static_cast<std::size_t>(behind->size_bytes), cudaMemcpyDeviceToHost,
                          context.stream));
  VN_CUDA(cudaStreamSynchronize(context.stream));
  auto movable = std::make_shared<PlacedWeight>();
  movable->ref = behind->ref;
  movable->row_factors_at = behind->row_factors_at;
  movable->size_bytes = behind->size_bytes;
  if (weight.scales != nullptr) weight.scales = record + (weight.scales - weight.codes);
  weight.codes = record;
  weight.owner = std::move(movable);
  return weight;
}

Result<WeightRef> weight_ref(const Weight& weight) {
  const PlacedWeight* const behind = placed(weight);
  if (behind == nullptr && weight.outer.per_row()) {
    return fail(ErrorCode::kUnsupported, "a weight with factors of its rows has not been placed on the GPU");
  }
  WeightRef ref = behind != nullptr ? behind->ref : describe(weight);
  ref.codes = weight.codes;
  ref.scales = weight.scales;
  if (behind != nullptr && behind->row_factors_at >= 0) {
    ref.row_factors = reinterpret_cast<const float*>(weight.codes + behind->row_factors_at);
  }
  return ref;
}

Status check_format(FormatId) { return {}; }

}  // namespace vernier::cuda
