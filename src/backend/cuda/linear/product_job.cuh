// One product of some rows of a weight with some rows of an input, as the blocks of every product kernel see it.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/decode_unit.cuh"
#include "backend/cuda/fragment/weight_ref.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

struct ProductJob {
  const MatrixRef* matrix = nullptr;
  const MatrixRef* second = nullptr;  ///< the matrix of `up` where the job is gated
  InputView x;                        ///< row i of the job: x_rows ? x_rows[i] / x_divisor : first_x_row + i
  const std::int32_t* x_rows = nullptr;
  int x_divisor = 1;
  int first_x_row = 0;
  float* y = nullptr;  ///< row i of the job: y_rows ? y_rows[i] : first_y_row + i
  const std::int32_t* y_rows = nullptr;
  int first_y_row = 0;
  std::int64_t y_stride = 0;
  int tile = 0;  ///< which row tile of the weight
  int first_token = 0;
  int end_token = 0;  ///< first_token: nothing to do
  bool accumulate = false;

  __device__ std::int64_t x_row(int i) const { return x_rows != nullptr ? x_rows[i] / x_divisor : first_x_row + i; }
  __device__ std::int64_t y_row(int i) const { return y_rows != nullptr ? y_rows[i] : first_y_row + i; }
};

/// The new value of y from a finished sum: the order and rounding that every kernel here shares.
__device__ __forceinline__ float finish_product(const MatrixRef& matrix, int row, float sum, const float* add_to) {
  float value = apply_outer(matrix.weight, row, sum);
  if (matrix.bias != nullptr) value = __fadd_rn(value, matrix.bias[row]);
  return add_to != nullptr ? __fadd_rn(*add_to, value) : value;
}

/// A part of a linear: `tile` counts row tiles of all outputs, `token_tile` tiles of tokens.
struct TileSize {
  int rows;
  int tokens;
};
__device__ inline ProductJob linear_job(const LinearBatch& batch, TileSize size, int tile, int token_tile) {
  int output = 0;
  while (true) {
    const int tiles = (batch.matrix[output].weight.rows + size.rows - 1) / size.rows;
    if (tile < tiles) break;
    tile -= tiles;
    ++output;
  }
  ProductJob job;
  job.matrix = &batch.matrix[output];
  job.x = batch.x;
  job.y = batch.y[output];
  job.y_stride = batch.y_stride[output];
  job.accumulate = batch.accumulate[output];
  job.tile = tile;
  job.first_token = token_tile * size.tokens;
  job.end_token = min(job.first_token + size.tokens, batch.tokens);
  return job;
}

/// A part of the experts: `tile` counts row tiles of the matrices. A job without tokens where there are fewer groups.
__device__ inline ProductJob expert_job(const ExpertBatch& batch, int rows_a_tile, int tile, int group) {
  ProductJob job;
  const ExpertGroups& groups = batch.groups;
  const bool direct = groups.count == nullptr;
  if (!direct && group >= *groups.count) return job;
  const int expert = groups.expert[group];
  if (expert < 0 || expert >= batch.experts) return job;
  const int tiles = (batch.rows + rows_a_tile - 1) / rows_a_tile;
  const int which = tile / tiles;
  const int first = direct ? group : groups.first[group];
  const std::int32_t* uses = direct ? nullptr : groups.uses + first;
  job.matrix = batch.matrix[which] + expert;
  job.second = batch.matrix[1] + expert;
  job.x = batch.x;
  job.x_rows = batch.x_by_place ? nullptr : uses;
  job.x_divisor = batch.top_k;
  job.first_x_row = batch.x_by_place ? first : group / batch.top_k;
  job.y = batch.y[which];
  job.y_rows = batch.y_by_use ? uses : nullptr;
  job.first_y_row = first;
  job.y_stride = batch.y_stride;
  job.tile = tile % tiles;
  job.end_token = direct ? 1 : groups.first[group + 1] - first;
  return job;
}

/// The grid of a launch, whose blocks find their part by linear_job() or expert_job(); `size` is of a linear's parts.
inline dim3 product_grid(const ProductSource& source, TileSize size) {
  const auto tiles_of = [&](int rows) { return static_cast<unsigned>((rows + size.rows - 1) / size.rows); };
  const ExpertBatch& experts = source.experts;
  if (experts.top_k > 0) {
    return dim3(tiles_of(experts.rows) * static_cast<unsigned>(experts.num_matrices),
                static_cast<unsigned>(experts.most_groups));
  }
  dim3 grid(0, static_cast<unsigned>((source.linear.tokens + size.tokens - 1) / size.tokens));
  for (int i = 0; i < source.linear.count; ++i) grid.x += tiles_of(source.linear.matrix[i].weight.rows);
  return grid;
}

}  // namespace vernier::cuda
