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

/// Enqueues the layout of `part`, a copy of whose staged bytes lies at `published` in device memory. `report` is in
/// device memory and blank.
[[nodiscard]] Result<RecordUnderWay> begin_record(const CudaContext& context, const RecordPlacer::Part& part,
                                                  std::byte* published, PackReport* report);
/// The weight, once `report` says what packing found. Numbers that don't fit make it stay as published.
[[nodiscard]] Result<Weight> finish_record(const CudaContext& context, const RecordUnderWay& under_way,
                                           const PackReport& report);

}  // namespace vernier::cuda
