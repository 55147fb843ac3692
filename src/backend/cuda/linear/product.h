// What a launch of a product kernel computes: a linear's outputs, or the products of a step's experts. Shared by the
// kernels, which differ in the weights and numbers of tokens they are for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

struct CudaContext;

/// An RMS norm of each row on its way into a product. `memory` has room for the normed rows.
struct RowNorm {
  const float* weight = nullptr;  ///< null: no norm
  float eps = 0.0F;
  float* memory = nullptr;
  std::int64_t stride = 0;
};

/// Rows of an input: fp32, or already as bf16 terms (row r's terms are rows terms * r .. of `rounded`, whose columns
/// reach to the next multiple of kUnitCols with zeros; then follow sums of groups where the packing wants them, see
/// group_packing.h).
struct InputView {
  const float* data = nullptr;
  std::int64_t stride = 0;
  const std::uint16_t* rounded = nullptr;
  std::int64_t rounded_stride = 0;
  int terms = 1;      ///< 1: rounded to bf16 once; 3: the exact sum of three bf16 numbers
  RowNorm norm = {};  ///< of `data`
};

/// Several products of one input.
struct LinearBatch {
  static constexpr int kMost = 8;
  int count = 0;
  int tokens = 0;  ///< at least one
  InputView x;
  MatrixRef matrix[kMost];
  float* y[kMost] = {};
  std::int64_t y_stride[kMost] = {};
  bool accumulate[kMost] = {};
};

/// Which experts a step uses and for which tokens, on the device. A use is a position t * top_k + j of the routing.
/// Uses are grouped by expert, rising within a group; a use's place is its number in that order.
struct ExpertGroups {
  const std::int32_t* count = nullptr;   ///< [1] groups; null: every use is a group of its own
  const std::int32_t* expert = nullptr;  ///< [count] expert of a group, or -1
  const std::int32_t* first = nullptr;   ///< [count + 1] a group's first place in `uses`
  const std::int32_t* uses = nullptr;    ///< [first[count]]
};

/// One or two products (gate and up; or down) of each used expert.
struct ExpertBatch {
  ExpertGroups groups;
  int most_groups = 0;
  int top_k = 0;  ///< at least one
  int experts = 0;
  int most_tokens = 0;  ///< of a group
  int rows = 0;         ///< of each matrix
  int cols = 0;
  int num_matrices = 0;             ///< 1 or 2
  const MatrixRef* matrix[2] = {};  ///< [experts] each
  InputView x;
  bool x_by_place = false;  ///< x's row is the use's place; else its token
  bool y_by_use = false;    ///< y's row is the use's number; else its place
  float* y[2] = {};
  std::int64_t y_stride = 0;
};

/// Products of any weights with any number of tokens.
[[nodiscard]] cudaError_t tile_linear(const LinearBatch& batch, cudaStream_t stream);
[[nodiscard]] cudaError_t tile_experts(const ExpertBatch& batch, cudaStream_t stream);

/// Where the kernel of gate and up leaves act(gate, up): as bf16 terms, row of a use's place.
struct GatedOutput {
  ActivationSpec spec;
  std::uint16_t* hidden = nullptr;
  std::int64_t stride = 0;
};

/// Whose products a launch makes: a linear's or, where top_k isn't 0, experts'.
struct ProductSource {
  LinearBatch linear;
  ExpertBatch experts;
};

/// Rows of fp32 as bf16 terms for weights of a packing, input_stride() numbers a row.
struct RoundedRows {
  std::uint16_t* data = nullptr;
  Packing packing{};
};
[[nodiscard]] cudaError_t round_input(const InputView& x, std::int64_t rows, std::int64_t cols, const RoundedRows& to,
                                      cudaStream_t stream);

/// Where normed rows go as bf16 terms, for packings that want no sums.
struct NormedRows {
  std::uint16_t* data = nullptr;
  std::int64_t stride = 0;  ///< columns up to it are written, zeros beyond the row's last
  int terms = 1;
};
/// rms_norm() into them.
[[nodiscard]] Status norm_and_round(CudaContext& context, const MatrixView& x, const RowNorm& norm,
                                    const NormedRows& to);

}  // namespace vernier::cuda
