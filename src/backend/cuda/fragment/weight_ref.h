// A placed weight as kernels see it: device pointers and plain numbers, copied by value into kernel parameters and
// expert tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/fragment/packing.h"
#include "tensor/dtype.h"

namespace vernier::cuda {

/// A [rows, cols] matrix in device memory, as published or packed (packing.h): what Weight says, with the outer scale
/// where kernels reach it.
struct WeightRef {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const float* row_factors = nullptr;  ///< [rows], or null: `factor` is the whole matrix's
  std::int64_t row_stride = 0;         ///< bytes
  std::int64_t scale_stride = 0;       ///< bytes
  std::int64_t first_row = 0;          ///< of this view within its scale grid
  float factor = 1.0F;
  float rescale = 1.0F;          ///< a power of two on sums of packed weights, before anything else
  std::uint32_t scale_bias = 0;  ///< packed block scales: what makes bf16 bits of a pair of them
  std::int32_t units = 0;        ///< packed: units of a row
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::int32_t scale_block_rows = 1;
  std::int32_t scale_block_cols = 0;
  std::int16_t kind = 0;         ///< number of its format and layout: weight_kind()
  std::int16_t unit_values = 0;  ///< values that decode_unit() makes at a time
  DType scale_dtype = DType::kF32;
  bool has_grid = false;  ///< block scales are applied to sums of at most a grid tile's columns
  bool divides = false;   ///< the outer factor divides
  Packing packing = Packing::kNone;
  std::uint8_t terms = 0;  ///< bf16 numbers that a value is the exact sum of

  friend bool operator==(const WeightRef&, const WeightRef&) = default;
};

/// Products with one weight: what a group of outputs or an expert needs beside it.
struct MatrixRef {
  WeightRef weight;
  const float* bias = nullptr;  ///< [rows] or null

  friend bool operator==(const MatrixRef&, const MatrixRef&) = default;
};

}  // namespace vernier::cuda
