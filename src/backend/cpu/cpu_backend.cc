#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "backend/check_args.h"
#include "backend/cpu/gate.h"
#include "backend/rank.h"
#include "format/decode.h"
#include "format/format_list.h"

namespace vernier {
namespace {

/// Floats below which elementwise work stays on one thread.
constexpr std::int64_t kWorthwhile = 16384;

std::int64_t min_rows(std::int64_t cols) { return kWorthwhile / cols + 1; }

}  // namespace

Result<std::unique_ptr<Backend>> CpuBackend::create(const BackendOptions& options) {
  VN_ASSIGN(const vernier_isa::Kernels* kernels, choose_kernels(options.cpu_isa));
  return std::make_unique<CpuBackend>(options, *kernels);
}

CpuBackend::CpuBackend(const BackendOptions& options, const vernier_isa::Kernels& kernels)
    : kernels_(options.precision == Precision::kBf16 ? kernels : unrounded_kernels(kernels)),
      precision_(options.precision),
      pool_(options.num_threads) {}

Status CpuBackend::check_decodable(const Weight& weight) const {
  const auto format = static_cast<unsigned>(weight.format);
  if (kernels_.decode_row(format, static_cast<unsigned>(weight.layout)) != nullptr) return {};
  return fail(ErrorCode::kInternal, "cpu: format {} has no such layout", format_info(weight.format).name);
}

Status CpuBackend::embed(const EmbedArgs& args) {
  VN_TRY(check_args(args));
  const Weight& table = *args.table;
  VN_TRY(check_decodable(table));
  const bool grid = format_info(table.format).has_grid;
  const auto decode = kernels_.decode_row(static_cast<unsigned>(table.format), static_cast<unsigned>(table.layout));
  const auto embed_rows = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t token = args.tokens[static_cast<std::size_t>(t)];
      float* x = args.x.row(t);
      if (grid) {
        decode_row(table, token, 0, table.cols, x);
      } else {
        const bool separate = table.layout == WeightLayout::kSeparate;
        decode(table.row_codes(token), separate ? table.row_scales(token) : nullptr, table.cols, x);
      }
      for (std::int64_t i = 0; i < table.cols; ++i) x[i] = table.outer.apply(x[i], token) * args.multiplier;
    }
  };
  pool_.parallel_for(args.x.rows, embed_rows, min_rows(table.cols));
  return {};
}

Status CpuBackend::rms_norm(const RmsNormArgs& args) {
  VN_TRY(check_args(args));
  const std::int64_t dim = args.x.cols;
  const float* weight = args.weight.empty() ? nullptr : args.weight.data();
  const auto normalize = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* x = args.x.row(t);
      if (args.residual != nullptr) kernels_.add(args.residual->row(t), dim, x);
      const float mean = kernels_.sum_of_squares(x, dim) / static_cast<float>(dim);
      kernels_.scale(x, 1.0F / std::sqrt(mean + args.eps), weight, dim, args.y.row(t));
    }
  };
  pool_.parallel_for(args.x.rows, normalize, min_rows(dim));
  return {};
}

Status CpuBackend::gated_activation(const GatedActivationArgs& args) {
  VN_TRY(check_args(args));
  const vernier_isa::Gate gate = make_gate(args.spec);
  const auto activate = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.activate(gate, args.gate.row(t), args.up.row(t), args.gate.cols, args.y.row(t));
    }
  };
  pool_.parallel_for(args.gate.rows, activate, min_rows(args.gate.cols));
  return {};
}

Status CpuBackend::combine(const CombineArgs& args) {
  VN_TRY(check_args(args));
  const auto add = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = args.x.row(t);
      float* y = args.y.row(t);
      if (args.beta == 0.0F) {  // overwrites: y may hold anything
        for (std::int64_t i = 0; i < args.x.cols; ++i) y[i] = args.alpha * x[i];
      } else {
        for (std::int64_t i = 0; i < args.x.cols; ++i) y[i] = args.alpha * x[i] + args.beta * y[i];
      }
    }
  };
  pool_.parallel_for(args.x.rows, add, min_rows(args.x.cols));
  return {};
}

Status CpuBackend::soft_cap(const SoftCapArgs& args) {
  VN_TRY(check_args(args));
  // A row of logits is long: rows are cut too.
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t pieces = (args.y.cols + kPiece - 1) / kPiece;
  const auto cap = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % pieces * kPiece;
      kernels_.soft_cap(args.cap, std::min(kPiece, args.y.cols - first), args.y.row(i / pieces) + first);
    }
  };
  pool_.parallel_for(args.y.rows * pieces, cap, 4);
  return {};
}

Status CpuBackend::sigmoid_gate(const SigmoidGateArgs& args) {
  VN_TRY(check_args(args));
  const auto gate = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* gates = args.gate.row(t);
      if (args.gate.cols == 1) {
        float factor = 1.0F;
        kernels_.gate_by_sigmoid(gates, 1, &factor);
        kernels_.scale(args.y.row(t), factor, nullptr, args.y.cols, args.y.row(t));
      } else {
        kernels_.gate_by_sigmoid(gates, args.y.cols, args.y.row(t));
      }
    }
  };
  pool_.parallel_for(args.y.rows, gate, min_rows(args.y.cols));
  return {};
}

Status CpuBackend::rank_logits(const RankArgs& args) {
  VN_TRY(check_args(args));
  const auto rank = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) rank_row(args, r);
  };
  pool_.parallel_for(args.logits.rows, rank);
  return {};
}

BackendEntry cpu_backend_entry() {
  return {.name = "cpu",
          .summary = "this machine's cores",
          .unavailable = [] { return std::string(); },
          .create = CpuBackend::create,
          .instruction_sets = available_isas};
}

}  // namespace vernier
