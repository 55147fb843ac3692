#include "backend/cuda/experts/expert_slots.h"

#include <algorithm>
#include <numeric>

#include "backend/check_args.h"
#include "backend/cuda/device_memory.h"

namespace vernier::cuda {
namespace {

constexpr std::size_t kArrayAlignment = 256;

/// Arrays one behind the other in a buffer whose size is found first.
class Layout {
 public:
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = size_;
    size_ += (count * sizeof(T) + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    return at;
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

template <class T>
T* array_at(const Buffer& buffer, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(buffer.data()) + offset);
}

/// Whether kernels reach this host memory by its own address.
Result<bool> is_page_locked(const void* data) {
  cudaPointerAttributes attributes = {};
  VN_CUDA(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeHost && attributes.devicePointer == data;
}

/// Whether the kernels can do with these banks.
Result<bool> are_suitable(const ExpertSlotsSetup& setup) {
  std::int64_t keys = 0;
  for (const ExpertSlotsSetup::Bank& bank : setup.banks) {
    keys += std::ssize(bank.records);
    if (std::ssize(bank.records) > kMostSlotExperts || keys > (1 << 28)) return false;
    for (const ExpertSlotsSetup::Record& record : bank.records) {
      if (record.size_bytes % sizeof(float4) != 0) return false;
      VN_ASSIGN(const bool readable, is_page_locked(record.data));
      if (!readable) return false;
    }
  }
  return keys > 0 && setup.num_slots > 0;
}

}  // namespace

Result<std::unique_ptr<ExpertSlots>> CudaExpertSlots::create(CudaContext& context, const ExpertSlotsSetup& setup) {
  VN_ASSIGN(const bool suitable, are_suitable(setup));
  if (!suitable) return nullptr;
  std::unique_ptr<CudaExpertSlots> slots(new CudaExpertSlots(context));
  const Status prepared = slots->prepare(setup);
  if (!prepared && prepared.error().code == ErrorCode::kOutOfMemory) return nullptr;
  VN_TRY(prepared);
  return std::unique_ptr<ExpertSlots>(std::move(slots));
}

Status CudaExpertSlots::prepare(const ExpertSlotsSetup& setup) {
  for (const ExpertSlotsSetup::Bank& bank : setup.banks) {
    layers_.push_back({.first_key = num_keys_, .bank = {}});
    num_keys_ += static_cast<std::int32_t>(bank.records.size());
    most_experts_ = std::max(most_experts_, static_cast<std::int32_t>(bank.records.size()));
  }
  tables_.slots = setup.slots;
  tables_.slot_bytes = setup.slot_bytes;
  tables_.num_slots = setup.num_slots;
  // Moving the living entries to the front is a kernel's work on all of them, so it should be seldom.
  tables_.log_size = 4 * setup.num_slots + std::max(most_experts_, kMostSlotUses) + 4096;
  VN_TRY(upload_experts(setup));
  return upload_books();
}

Status CudaExpertSlots::write(void* to, const void* from, std::size_t size_bytes) const {
  VN_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, context_.stream));
  return cuda_status(cudaStreamSynchronize(context_.stream), "copying to the GPU");
}

Status CudaExpertSlots::read(void* to, const void* from, std::size_t size_bytes) const {
  VN_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, context_.stream));
  return cuda_status(cudaStreamSynchronize(context_.stream), "copying from the GPU");
}

Status CudaExpertSlots::upload_experts(const ExpertSlotsSetup& setup) {
  std::vector<ExpertRecord> records;
  std::vector<MatrixRef> matrices;
  std::vector<std::size_t> begins;
  for (const ExpertSlotsSetup::Bank& bank : setup.banks) {
    begins.push_back(matrices.size());
    if (bank.records.empty()) continue;
    for (const ExpertSlotsSetup::Record& record : bank.records) records.push_back({record.data, record.size_bytes});
    VN_ASSIGN(const std::vector<MatrixRef> table, bank_table(bank.experts));
    layers_[begins.size() - 1].bank = view_bank(table);
    matrices.insert(matrices.end(), table.begin(), table.end());
  }
  Layout layout;
  const std::size_t records_at = layout.add<ExpertRecord>(records.size());
  const std::size_t home_at = layout.add<MatrixRef>(matrices.size());
  const std::size_t current_at = layout.add<MatrixRef>(matrices.size());
  VN_ASSIGN(experts_, allocate_device(layout.size(), "tables of experts"));
  tables_.records = array_at<ExpertRecord>(experts_, records_at);
  tables_.home = array_at<MatrixRef>(experts_, home_at);
  tables_.current = array_at<MatrixRef>(experts_, current_at);
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].bank.device = tables_.current + begins[i];
  VN_TRY(write(array_at<ExpertRecord>(experts_, records_at), records.data(), records.size() * sizeof(ExpertRecord)));
  VN_TRY(write(array_at<MatrixRef>(experts_, home_at), matrices.data(), matrices.size() * sizeof(MatrixRef)));
  return write(tables_.current, matrices.data(), matrices.size() * sizeof(MatrixRef));
}

/// All slots empty, the first one unused for longest.
Status CudaExpertSlots::upload_books() {
  const auto num_slots = static_cast<std::size_t>(tables_.num_slots);
  Layout layout;
  const std::size_t state_at = layout.add<SlotState>(1);
  const std::size_t slot_of_at = layout.add<std::int32_t>(static_cast<std::size_t>(num_keys_));
  const std::size_t key_of_at = layout.add<std::int32_t>(num_slots);
  const std::size_t used_at_at = layout.add<std::int32_t>(num_slots);
  const std::size_t log_at = layout.add<std::int32_t>(static_cast<std::size_t>(tables_.log_size));
  const std::size_t fetches_at = layout.add<SlotFetch>(static_cast<std::size_t>(most_experts_));
  VN_ASSIGN(books_, allocate_device(layout.size(), "books of experts in slots"));
  tables_.state = array_at<SlotState>(books_, state_at);
  tables_.slot_of = array_at<std::int32_t>(books_, slot_of_at);
  tables_.key_of = array_at<std::int32_t>(books_, key_of_at);
  tables_.used_at = array_at<std::int32_t>(books_, used_at_at);
  tables_.log = array_at<std::int32_t>(books_, log_at);
  tables_.fetches = array_at<SlotFetch>(books_, fetches_at);
  const SlotState state = {.tail = tables_.num_slots};
  const std::vector<std::int32_t> none(std::max(num_slots, static_cast<std::size_t>(num_keys_)), -1);
  std::vector<std::int32_t> order(num_slots);
  std::iota(order.begin(), order.end(), 0);
  VN_TRY(write(tables_.state, &state, sizeof(state)));
  VN_TRY(write(tables_.slot_of, none.data(), static_cast<std::size_t>(num_keys_) * sizeof(std::int32_t)));
  VN_TRY(write(tables_.key_of, none.data(), num_slots * sizeof(std::int32_t)));
  VN_TRY(write(tables_.used_at, order.data(), num_slots * sizeof(std::int32_t)));
  return write(tables_.log, order.data(), num_slots * sizeof(std::int32_t));
}

Status CudaExpertSlots::expert_mlp(std::int32_t layer, const ExpertMlpArgs& args) {
  VN_TRY(check_args(args));
  VN_CUDA(cudaSetDevice(context_.device));
  if (args.x.rows == 0) return {};
  const Layer& of = layers_[static_cast<std::size_t>(layer)];
  const SlotAdmission admission = {.ids = args.ids,
                                   .uses = static_cast<std::int32_t>(args.x.rows * args.top_k),
                                   .experts = static_cast<std::int32_t>(of.bank.experts),
                                   .first_key = of.first_key};
  VN_CUDA(admit_experts(tables_, admission, context_.stream));
  VN_CUDA(fetch_experts(tables_, context_.stream));
  return cuda::expert_mlp(context_, args, of.bank);
}

void* CudaExpertSlots::turn() const { return &tables_.state->turn; }

Result<std::vector<SlotExpert>> CudaExpertSlots::residents() {
  SlotState state;
  VN_TRY(read(&state, tables_.state, sizeof(state)));
  const auto num_slots = static_cast<std::size_t>(tables_.num_slots);
  std::vector<std::int32_t> key_of(num_slots);
  std::vector<std::int32_t> used_at(num_slots);
  std::vector<std::int32_t> log(static_cast<std::size_t>(state.tail));
  VN_TRY(read(key_of.data(), tables_.key_of, num_slots * sizeof(std::int32_t)));
  VN_TRY(read(used_at.data(), tables_.used_at, num_slots * sizeof(std::int32_t)));
  VN_TRY(read(log.data(), tables_.log, log.size() * sizeof(std::int32_t)));
  std::vector<SlotExpert> residents;
  for (std::int32_t entry = state.head; entry < state.tail; ++entry) {
    const auto slot = static_cast<std::size_t>(log[static_cast<std::size_t>(entry)]);
    if (used_at[slot] != entry || key_of[slot] < 0) continue;
    const auto after = std::ranges::upper_bound(layers_, key_of[slot], {}, &Layer::first_key);
    const auto layer = static_cast<std::int32_t>(after - layers_.begin()) - 1;
    residents.push_back({.slot = static_cast<std::int32_t>(slot),
                         .layer = layer,
                         .expert = key_of[slot] - layers_[static_cast<std::size_t>(layer)].first_key});
  }
  return residents;
}

Status CudaExpertSlots::record_uses(std::span<const SlotExpert> uses) {
  VN_CUDA(cudaSetDevice(context_.device));
  std::vector<SlotUse> keyed;
  for (const SlotExpert& use : uses) {
    keyed.push_back({use.slot, layers_[static_cast<std::size_t>(use.layer)].first_key + use.expert});
  }
  for (std::span<const SlotUse> rest(keyed); !rest.empty();) {
    const std::span<const SlotUse> part = rest.first(std::min<std::size_t>(rest.size(), kMostSlotUses));
    VN_ASSIGN(const SlotUse* const uploaded, context_.upload(part));
    VN_CUDA(record_slot_uses(tables_, uploaded, static_cast<std::int32_t>(part.size()), context_.stream));
    rest = rest.subspan(part.size());
  }
  return {};
}

Result<ExpertSlots::Counters> CudaExpertSlots::counters() {
  SlotState state;
  VN_TRY(read(&state, tables_.state, sizeof(state)));
  const double seconds = static_cast<double>(state.copy_ns) * 1e-9;
  return Counters{.found = static_cast<std::int64_t>(state.found),
                  .moved = static_cast<std::int64_t>(state.moved),
                  .moved_bytes = state.moved_bytes,
                  .bytes_per_second = seconds > 0.0 ? static_cast<double>(state.copy_bytes) / seconds : 0.0};
}

}  // namespace vernier::cuda
