#include "backend/cuda/experts/expert_bank.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/linear/placed_weight.h"

namespace vernier::cuda {
namespace {

/// What a matrix of a placed bank's table was made of: weights with the same have the same reference.
struct MatrixSource {
  std::weak_ptr<const void> owner;  ///< not shared: the bank belongs to one of them
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const float* bias = nullptr;

  [[nodiscard]] bool is(const Weight& weight, const float* bias_of_it) const {
    return codes == weight.codes && scales == weight.scales && bias == bias_of_it &&
           !owner.owner_before(weight.owner) && !weight.owner.owner_before(owner);
  }
};

/// A bank's table as it was copied to the device.
struct DeviceBank {
  std::vector<MatrixSource> sources;
  BankView view;
  Buffer memory;
};

/// Calls visit(weight, bias or null) for the matrices of a bank in the table's order, until one returns false.
template <class Visit>
bool visit_matrices(const ExpertWeights& experts, const Visit& visit) {
  const std::vector<Weight>* const weights[] = {&experts.gate, &experts.up, &experts.down};
  const std::vector<std::span<const float>>* const biases[] = {&experts.gate_bias, &experts.up_bias,
                                                               &experts.down_bias};
  for (std::size_t which = 0; which < 3; ++which) {
    for (std::size_t e = 0; e < weights[which]->size(); ++e) {
      const bool has_bias = !biases[which]->empty() && !(*biases[which])[e].empty();
      if (!visit((*weights[which])[e], has_bias ? (*biases[which])[e].data() : nullptr)) return false;
    }
  }
  return true;
}

/// Whether a bank's table is still that of these experts. Much cheaper than to make the table: a call with one token
/// takes the GPU a few microseconds.
bool is_table_of(const DeviceBank& bank, const ExpertWeights& experts) {
  if (bank.sources.size() != 3 * experts.gate.size()) return false;
  auto source = bank.sources.begin();
  return visit_matrices(experts, [&](const Weight& weight, const float* bias) { return (source++)->is(weight, bias); });
}

/// The packing of all matrices in [begin, end), or kNone.
Packing common_packing(std::span<const MatrixRef> matrices) {
  const Packing packing = matrices.front().weight.packing;
  const auto same = [packing](const MatrixRef& matrix) { return matrix.weight.packing == packing; };
  return std::ranges::all_of(matrices, same) ? packing : Packing::kNone;
}

}  // namespace

Result<std::vector<MatrixRef>> bank_table(const ExpertWeights& experts) {
  std::vector<MatrixRef> table;
  table.reserve(3 * experts.gate.size());
  Status status;
  visit_matrices(experts, [&](const Weight& weight, const float* bias) {
    Result<WeightRef> ref = weight_ref(weight);
    if (!ref) {
      status = tl::unexpected(ref.error());
      return false;
    }
    table.push_back({.weight = *ref, .bias = bias});
    return true;
  });
  VN_TRY(status);
  return table;
}

BankView view_bank(std::span<const MatrixRef> table) {
  const std::size_t count = table.size() / 3;
  BankView view;
  view.experts = static_cast<std::int64_t>(count);
  view.gate_up = common_packing(table.first(2 * count));
  view.down = common_packing(table.last(count));
  return view;
}

Result<BankView> device_bank(const CudaContext& context, const ExpertWeights& experts) {
  const PlacedWeight* const first = placed(experts.gate[0]);
  const bool is_placed = first != nullptr && first->bytes.memory != nullptr;
  const auto* const known = is_placed ? static_cast<const DeviceBank*>(first->bank.get()) : nullptr;
  if (known != nullptr && is_table_of(*known, experts)) return known->view;
  VN_ASSIGN(const std::vector<MatrixRef> table, bank_table(experts));
  BankView view = view_bank(table);
  if (!is_placed) {
    VN_ASSIGN(view.device, context.upload(std::span<const MatrixRef>(table)));
    return view;
  }
  auto bank = std::make_shared<DeviceBank>();
  const std::size_t size = table.size() * sizeof(MatrixRef);
  VN_ASSIGN(bank->memory, allocate_device(size, "a table of experts"));
  VN_CUDA(cudaMemcpyAsync(bank->memory.data(), table.data(), size, cudaMemcpyHostToDevice, context.stream));
  VN_CUDA(cudaStreamSynchronize(context.stream));  // a table that this one replaces may be in use
  view.device = static_cast<const MatrixRef*>(bank->memory.data());
  bank->view = view;
  bank->sources.reserve(table.size());
  visit_matrices(experts, [&](const Weight& weight, const float* bias) {
    bank->sources.push_back({weight.owner, weight.codes, weight.scales, bias});
    return true;
  });
  first->bank = std::move(bank);
  return view;
}

}  // namespace vernier::cuda
