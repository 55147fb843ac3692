// Backend's defaults for weights that come and go: right on every backend, without overlap of copies and work.
#include "backend/backend.h"
#include "backend/copy_memory.h"
#include "backend/packed_weight.h"

namespace vernier {
namespace {

class PlainCopyLane final : public CopyLane {
 public:
  explicit PlainCopyLane(Backend& backend) : backend_(backend) {}

  Status copy(void* device, const void* host, std::size_t size_bytes) override {
    return backend_.copy_to_device(device, host, size_bytes);
  }
  // A copy that waits for what came before and is complete when it returns needs no fence.
  Status follow_compute() override { return backend_.synchronize(); }
  Status lead_compute() override { return {}; }
  double bytes_per_second() override { return 0.0; }

 private:
  Backend& backend_;
};

}  // namespace

Result<Buffer> Backend::allocate_host(std::size_t size_bytes) { return allocate_pageable(size_bytes); }

std::uint64_t Backend::record_bytes(const Weight& host) const { return stored_bytes(host); }

Result<Weight> Backend::pack(const Weight& host, std::byte* record) { return pack_as_stored(host, record); }

Result<std::unique_ptr<CopyLane>> Backend::create_copy_lane() { return std::make_unique<PlainCopyLane>(*this); }

}  // namespace vernier
