#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/row_products.h"

namespace vernier {

Result<std::span<const float*>> CpuBackend::input_rows(const MatrixView& x, Precision precision) {
  VN_ASSIGN(const float** pointers, pointers_.get(static_cast<std::size_t>(x.rows)));
  if (precision == Precision::kF32) {
    for (std::int64_t t = 0; t < x.rows; ++t) pointers[t] = x.row(t);
  } else {
    VN_ASSIGN(float* rounded, rounded_.get(static_cast<std::size_t>(x.rows * x.cols)));
    const auto round = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t t = begin; t < end; ++t) {
        kernels_.round_to_bf16(x.row(t), x.cols, rounded + t * x.cols);
        pointers[t] = rounded + t * x.cols;
      }
    };
    constexpr std::int64_t kWorthwhile = 65536;
    pool_.parallel_for(x.rows, round, kWorthwhile / x.cols + 1);
  }
  return std::span(pointers, static_cast<std::size_t>(x.rows));
}

Status CpuBackend::linear(const LinearArgs& args) {
  VN_TRY(check_args(args));
  if (args.x.rows == 0) return {};
  const std::int64_t step = rows_per_tile(args.x.rows);
  std::int64_t num_tiles = 0;
  for (const LinearOutput& output : args.outputs) {
    VN_TRY(check_decodable(*output.weight));
    num_tiles += (output.weight->rows + step - 1) / step;
  }
  VN_ASSIGN(const std::span<const float* const> x, input_rows(args.x, precision_));
  const std::size_t part = row_scratch_floats(args.x.cols, args.x.rows);
  VN_ASSIGN(float* scratch, worker_floats_.get(part * static_cast<std::size_t>(pool_.size())));

  // The tiles of all outputs in a row are cut among the workers.
  const auto multiply = [&](std::int64_t begin, std::int64_t end, int worker) {
    float* own = scratch + part * static_cast<std::size_t>(worker);
    std::int64_t first = 0;
    for (const LinearOutput& output : args.outputs) {
      const std::int64_t rows = output.weight->rows;
      const std::int64_t row_begin = std::clamp<std::int64_t>((begin - first) * step, 0, rows);
      const std::int64_t row_end = std::clamp<std::int64_t>((end - first) * step, 0, rows);
      first += (rows + step - 1) / step;
      multiply_rows(kernels_, *output.weight, row_begin, row_end, x, own,
                    [&](std::int64_t n, std::int64_t t, float product) {
                      if (!output.bias.empty()) product += output.bias[static_cast<std::size_t>(n)];
                      float& y = output.y.row(t)[n];
                      y = output.accumulate ? y + product : product;
                    });
    }
  };
  pool_.parallel_for(num_tiles, multiply, min_tiles_per_worker(args.x.cols, args.x.rows));
  return {};
}

}  // namespace vernier
