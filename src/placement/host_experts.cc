#include "placement/host_experts.h"

#include <array>
#include <chrono>

#include "placement/detour_arrays.h"

namespace vernier {

Status HostExpertExecutor::add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) {
  return streamer_ != nullptr ? streamer_->add_bank(layer, top_k, bank) : Status();
}

Status HostExpertExecutor::prepare() {
  if (streamer_ == nullptr) return {};
  Status prepared = streamer_->prepare();
  const bool has_no_room = !prepared && (prepared.error().code == ErrorCode::kOutOfMemory ||
                                         prepared.error().code == ErrorCode::kInvalidArgument);
  if (!has_no_room) return prepared;
  streamer_.reset();
  return {};
}

Status HostExpertExecutor::run(std::int32_t layer, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  if (streamer_ == nullptr || !lanes_.streams(args.x.rows)) return run_on_host(args);
  VN_TRY(streamer_->run(layer, args));
  if (!PromptLanes::compares(args.x.rows)) return {};
  const auto enqueued = std::chrono::steady_clock::now();
  VN_TRY(device_.synchronize());
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - enqueued;
  lanes_.record(args.x.rows, /*streamed=*/true, streamer_->last_seconds() + waited.count());
  return {};
}

Status HostExpertExecutor::run_on_host(const ExpertMlpArgs& args) {
  // y travels too, so that the sum has the order that it has on one device.
  const std::array<DetourArray, 4> arrays = {choices_array(args), weights_array(args), matrix_array(args.x),
                                             matrix_array(args.y)};
  const auto compute = [this, args](std::span<std::byte* const> host) -> Status {
    ExpertMlpArgs on_host = args;
    on_host.ids = reinterpret_cast<const std::int32_t*>(host[0]);
    on_host.weights = reinterpret_cast<const float*>(host[1]);
    on_host.x = {reinterpret_cast<float*>(host[2]), args.x.rows, args.x.cols, args.x.cols};
    on_host.y = {reinterpret_cast<float*>(host[3]), args.y.rows, args.y.cols, args.y.cols};
    const auto start = std::chrono::steady_clock::now();
    VN_TRY(host_->expert_mlp(on_host));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    lanes_.record(args.x.rows, /*streamed=*/false, time.count());
    return {};
  };
  return vernier::run_on_host(device_, {arrays, /*returns_last=*/true, compute});
}

}  // namespace vernier
