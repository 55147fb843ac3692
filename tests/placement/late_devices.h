// Devices of tests of placement: host backends in disguise whose work, or whose copies, run as late as they may.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/expert_slots.h"
#include "backend/host_backend.h"
#include "backend/packed_weight.h"
#include "backend/record_placer.h"
#include "support/slot_model.h"

namespace vernier::test {

enum class Late { kWork, kCopies };

/// Experts as the CPU backend computes them, but queued.
class QueueingDevice : public HostBackend {
 public:
  QueueingDevice(std::unique_ptr<Backend> inner, Late late) : inner_(std::move(inner)), late_(late) {}

  std::string_view name() const override { return "queueing"; }
  Precision precision() const override { return inner_->precision(); }
  bool is_host() const override { return false; }
  Status synchronize() override {
    run(copies_);
    run(work_);
    return {};
  }
  Status copy_to_host(void* host, const void* device, std::size_t size_bytes) override {
    VN_TRY(synchronize());
    return HostBackend::copy_to_host(host, device, size_bytes);
  }
  Status copy_to_device(void* device, const void* host, std::size_t size_bytes) override {
    VN_TRY(synchronize());
    return HostBackend::copy_to_device(device, host, size_bytes);
  }
  Status expert_mlp(const ExpertMlpArgs& args) override {
    // A launch reads its arguments at once; what they point to in device memory, when it runs.
    auto weights = std::make_shared<ExpertWeights>(*args.experts);
    return enqueue([this, args, weights] {
      ExpertMlpArgs own = args;
      own.experts = weights.get();
      EXPECT_TRUE(inner_->expert_mlp(own));
    });
  }
  Status combine(const CombineArgs& args) override {
    return enqueue([this, args] { EXPECT_TRUE(inner_->combine(args)); });
  }
  Result<std::unique_ptr<CopyLane>> create_copy_lane() override;
  Status enqueue(std::function<void()> task) {
    work_.push_back(std::move(task));
    if (late_ == Late::kCopies) run(work_);  // the earliest that fences allow: lead_compute() has run its copies
    return {};
  }
  Backend& inner() { return *inner_; }
  [[nodiscard]] Late late() const { return late_; }

  Status embed(const EmbedArgs&) override { return unused(); }
  Status rms_norm(const RmsNormArgs&) override { return unused(); }
  Status linear(const LinearArgs&) override { return unused(); }
  Status rope_and_store_kv(const RopeStoreArgs&) override { return unused(); }
  Status attention(const AttentionArgs&) override { return unused(); }
  Status gated_activation(const GatedActivationArgs&) override { return unused(); }
  Status route_experts(const RouteArgs&) override { return unused(); }

 private:
  friend class QueueingLane;
  using Queue = std::vector<std::function<void()>>;

  static Status unused() { return fail(ErrorCode::kInternal, "not part of the test"); }
  static void run(Queue& queue) {
    Queue taken;
    taken.swap(queue);
    for (const auto& task : taken) task();
  }
  std::unique_ptr<Backend> inner_;
  Late late_;
  Queue work_;
  Queue copies_;
};

class QueueingLane final : public CopyLane {
 public:
  explicit QueueingLane(QueueingDevice& device) : device_(device) {}
  Status copy(void* device, const void* host, std::size_t size_bytes) override {
    device_.copies_.push_back([device, host, size_bytes] { std::memcpy(device, host, size_bytes); });
    if (device_.late_ == Late::kWork) QueueingDevice::run(device_.copies_);
    return {};
  }
  Status follow_compute() override {
    QueueingDevice::run(device_.work_);
    return {};
  }
  Status lead_compute() override {
    QueueingDevice::run(device_.copies_);
    return {};
  }
  double bytes_per_second() override { return 0.0; }

 private:
  QueueingDevice& device_;
};

inline Result<std::unique_ptr<CopyLane>> QueueingDevice::create_copy_lane() {
  return std::make_unique<QueueingLane>(*this);
}

/// One that lays records out by itself, as late as it may, from parcels that come as late, or as early, as they may.
class PlacingDevice final : public QueueingDevice, public RecordPlacer {
 public:
  using QueueingDevice::place;
  using QueueingDevice::QueueingDevice;

  Result<Buffer> lock(std::span<const std::byte> bytes) override {
    if (num_locks_left-- <= 0) return fail(ErrorCode::kOutOfMemory, "refused");
    ++num_locked;
    static int* unlock = nullptr;
    unlock = &num_locked;
    return Buffer(const_cast<std::byte*>(bytes.data()), bytes.size(), [](void*) { --*unlock; });
  }
  Result<std::byte*> stage(std::int32_t number, std::size_t size_bytes) override {
    Parcel& parcel = parcels_[number];
    run_copies(parcel);
    VN_ASSIGN(parcel.staging, allocate(size_bytes));
    num_staged += size_bytes;
    return static_cast<std::byte*>(parcel.staging.data());
  }
  Status send(std::int32_t number, std::span<const Run> runs) override {
    Parcel& parcel = parcels_[number];
    run_copies(parcel);
    VN_TRY(synchronize());  // work may read what the parcel had
    parcel.runs.assign(runs.begin(), runs.end());
    parcel.copies.clear();
    EXPECT_TRUE(std::is_sorted(runs.begin(), runs.end(),
                               [](const Run& a, const Run& b) { return a.bytes.data() < b.bytes.data(); }));
    for (const Run& run : runs) parcel.copies.emplace_back(run.bytes.size());
    parcel.is_copied = false;
    if (late() == Late::kWork) run_copies(parcel);
    ++num_sent;
    return {};
  }
  Status place(std::int32_t number, std::span<const Part> parts) override {
    Parcel& parcel = parcels_[number];
    run_copies(parcel);
    for (const Part& part : parts) {
      std::byte* const to = part.record;
      if (part.host == nullptr) {
        const std::byte* const raw = parcel.find(part.raw.data());
        VN_TRY(enqueue([raw, to, size = part.raw.size()] { std::memcpy(to, raw, size); }));
        continue;
      }
      Weight there = *part.host;
      there.codes = parcel.find(there.codes);
      if (there.scales != nullptr) there.scales = parcel.find(there.scales);
      VN_TRY(enqueue([there, to] { (void)pack_as_stored(there, to); }));
      if (part.known != nullptr) continue;
      std::vector<std::byte> like(stored_bytes(there));
      placed_.push_back(moved_weight(pack_as_stored(there, like.data()), like.data(), to));
    }
    return {};
  }
  Result<std::vector<Weight>> finish() override { return std::exchange(placed_, {}); }
  double bytes_per_second() override { return 0.0; }

  int num_locks_left = 0;
  int num_locked = 0;
  int num_sent = 0;
  std::size_t num_staged = 0;

 private:
  struct Parcel {
    Buffer staging;
    std::vector<Run> runs;
    std::vector<std::vector<std::byte>> copies;
    bool is_copied = true;

    [[nodiscard]] const std::byte* find(const std::byte* host) const {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::ptrdiff_t at = host - runs[i].bytes.data();
        if (at >= 0 && at < std::ssize(copies[i])) return copies[i].data() + at;
      }
      ADD_FAILURE() << "not sent";
      return nullptr;
    }
  };
  static void run_copies(Parcel& parcel) {
    if (parcel.is_copied) return;
    for (std::size_t i = 0; i < parcel.runs.size(); ++i) {
      copy_pages(parcel.runs[i].source, parcel.copies[i].data(), parcel.copies[i].size());
    }
    parcel.is_copied = true;
  }
  /// A device reads locked pages, so also what lies in them between two weights. Here that is between two allocations,
  /// to which AddressSanitizer would object.
  __attribute__((no_sanitize("address"))) static void copy_pages(const std::byte* from, std::byte* to,
                                                                 std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      const volatile std::byte* const at = from + i;  // or the loop becomes memcpy(), which is watched
      to[i] = *at;
    }
  }

  std::map<std::int32_t, Parcel> parcels_;
  std::vector<Weight> placed_;
};

/// Slots that are filled in the order of a device's work.
class QueueingSlots final : public ExpertSlots {
 public:
  QueueingSlots(QueueingDevice& device, const ExpertSlotsSetup& setup)
      : device_(device), setup_(setup), banks_(setup.banks.begin(), setup.banks.end()), model_(setup.num_slots) {}

  Status expert_mlp(std::int32_t layer, const ExpertMlpArgs& args) override {
    return device_.enqueue([this, layer, args] {
      const ExpertSlotsSetup::Bank& bank = banks_[static_cast<std::size_t>(layer)];
      const std::span ids(args.ids, static_cast<std::size_t>(args.x.rows * args.top_k));
      ExpertMlpArgs own = args;
      ExpertWeights weights = bank.experts;
      for (const auto& [at, found] : model_.admit(layer, ids, static_cast<std::int32_t>(bank.records.size()))) {
        const auto e = static_cast<std::size_t>(at.expert);
        const ExpertSlotsSetup::Record& record = bank.records[e];
        std::byte* const slot = setup_.slots + static_cast<std::size_t>(at.slot) * setup_.slot_bytes;
        if (!found) std::memcpy(slot, record.data, record.size_bytes);
        for (auto* const matrices : {&weights.gate, &weights.up, &weights.down}) {
          (*matrices)[e] = moved_weight((*matrices)[e], record.data, slot);
        }
        ++(found ? counters_.found : counters_.moved);
      }
      own.experts = &weights;
      EXPECT_TRUE(device_.inner().expert_mlp(own));
      ++turn_;
    });
  }
  void* turn() const override { return const_cast<std::uint32_t*>(&turn_); }
  Result<std::vector<SlotExpert>> residents() override {
    VN_TRY(device_.synchronize());
    return model_.residents();
  }
  Status record_uses(std::span<const SlotExpert> uses) override {
    const std::vector<SlotExpert> own(uses.begin(), uses.end());
    return device_.enqueue([this, own] {
      for (const SlotExpert& use : own) model_.use(use);
    });
  }
  Result<Counters> counters() override {
    VN_TRY(device_.synchronize());
    return counters_;
  }

 private:
  QueueingDevice& device_;
  ExpertSlotsSetup setup_;
  std::vector<ExpertSlotsSetup::Bank> banks_;
  SlotModel model_;
  std::uint32_t turn_ = 0;
  Counters counters_;
};

/// One that fills slots by itself.
class FillingDevice final : public QueueingDevice, public ExpertSlotDevice {
 public:
  using QueueingDevice::QueueingDevice;
  Result<std::unique_ptr<ExpertSlots>> create_expert_slots(const ExpertSlotsSetup& setup) override {
    return std::make_unique<QueueingSlots>(*this, setup);
  }
};

}  // namespace vernier::test
