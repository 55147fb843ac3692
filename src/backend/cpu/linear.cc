#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/row_products.h"

namespace vernier {

Status CpuBackend::linear(const LinearArgs& args) {
  VN_TRY(check_args(args));
  if (args.norm.present()) {
    VN_TRY(rms_norm(norm_of(args)));
    return linear(after_norm(args));
  }
  if (args.x.rows == 0) return {};
  std::int64_t num_tiles = 0;
  weights_.clear();
  for (const LinearOutput& output : args.outputs) {
    VN_TRY(check_decodable(*output.weight));
    weights_.push_back(output.weight);
    const std::int64_t step = rows_per_tile(row_kernels_of(kernels_, *output.weight), args.x.rows);
    num_tiles += (output.weight->rows + step - 1) / step;
  }
  VN_TRY(inputs_.prepare(pool_, kernels_, args.x, precision_, weights_));
  const std::size_t part = row_scratch_floats(kernels_, args.x.rows);
  VN_ASSIGN(float* scratch, worker_floats_.get(part * static_cast<std::size_t>(pool_.size())));

  // The tiles of all outputs in a row are cut among the workers.
  const auto multiply = [&](std::int64_t begin, std::int64_t end, int worker) {
    float* own = scratch + part * static_cast<std::size_t>(worker);
    std::int64_t first = 0;
    for (const LinearOutput& output : args.outputs) {
      const std::int64_t rows = output.weight->rows;
      const vernier_isa::RowKernels& kind = row_kernels_of(kernels_, *output.weight);
      const std::int64_t step = rows_per_tile(kind, args.x.rows);
      const std::int64_t row_begin = std::clamp<std::int64_t>((begin - first) * step, 0, rows);
      const std::int64_t row_end = std::clamp<std::int64_t>((end - first) * step, 0, rows);
      first += (rows + step - 1) / step;
      multiply_rows(kernels_, *output.weight, row_begin, row_end, inputs_.rows(kind), own,
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
