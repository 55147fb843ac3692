// Laying a weight out in a record in device memory, in two parts: what is enqueued, and what is known only when that
// has run.
#pragma once

#include "backend/cuda/linear/pack.h"
#include "backend/cuda/linear/placed_weight.h"
#include "backend/record_placer.h"

namespace vernier::cuda {

struct RecordUnderWay {
  const Weight* host = nullptr;
  std::byte* record = nullptr;
  std::shared_ptr<PlacedWeight> placed;
};

/// A weight's codes and scales in device memory, `host`'s strides apart.
struct PublishedRecord {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
};

/// Enqueues the layout of `part`, whose bytes lie at `published`. `report` is in device memory and blank.
[[nodiscard]] Result<RecordUnderWay> begin_record(const CudaContext& context, const RecordPlacer::Part& part,
                                                  const PublishedRecord& published, PackReport* report);
/// The weight, once `report` says what packing found. Numbers that don't fit make it stay as published.
[[nodiscard]] Result<Weight> finish_record(const CudaContext& context, const RecordUnderWay& under_way,
                                           const PackReport& report);
/// Enqueues the layout of `part`, which is known, once more: nobody need look at `report`.
[[nodiscard]] Status repeat_record(const CudaContext& context, const RecordPlacer::Part& part,
                                   const PublishedRecord& published, PackReport* report);

}  // namespace vernier::cuda
