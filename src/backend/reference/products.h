// The one matrix product of the reference backend.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/input_rounding.h"
#include "base/thread_pool.h"
#include "format/decode.h"

namespace vernier {

/// Rows of activations in double, side by side, rounded first as `precision` says.
struct InputRows {
  std::int64_t count = 0;
  std::int64_t cols = 0;
  std::vector<double> values;  ///< [count, cols]

  InputRows(std::int64_t row_count, std::int64_t row_cols)
      : count(row_count), cols(row_cols), values(static_cast<std::size_t>(row_count * row_cols)) {}

  void set(std::int64_t row, const float* x, Precision precision) {
    for (std::int64_t i = 0; i < cols; ++i) {
      values[static_cast<std::size_t>(row * cols + i)] = round_input(x[i], precision);
    }
  }
  [[nodiscard]] const double* row(std::int64_t r) const { return values.data() + r * cols; }
};

/// Calls emit(n, m, product) with the sum over k of weight[n, k] * x[m, k], the second-level scale applied in fp32, for
/// all rows n of the weight and m of x. Different n may run on different threads.
template <class Emit>
void for_each_product(ThreadPool& pool, const Weight& weight, const InputRows& x, Emit emit) {
  pool.parallel_for(weight.rows, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> row(static_cast<std::size_t>(weight.cols));
    for (std::int64_t n = begin; n < end; ++n) {
      decode_row_f64(weight, n, 0, weight.cols, row.data());
      for (std::int64_t m = 0; m < x.count; ++m) {
        const double* input = x.row(m);
        double sum = 0.0;
        for (std::int64_t k = 0; k < weight.cols; ++k) sum += row[static_cast<std::size_t>(k)] * input[k];
        emit(n, m, weight.outer.apply(static_cast<float>(sum), n));
      }
    }
  });
}

/// gate and up through the gated activation, in double.
[[nodiscard]] double activate(const ActivationSpec& spec, double gate, double up);

}  // namespace vernier
