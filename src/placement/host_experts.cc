#include "placement/host_experts.h"

#include <array>

namespace vernier {

Status HostExpertExecutor::run(std::int32_t /*layer*/, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  // y travels too, so that the sum has the order that it has on one device.
  const std::array<DetourArray, 4> arrays = {choices_array(args), weights_array(args), matrix_array(args.x),
                                             matrix_array(args.y)};
  const auto compute = [&](std::span<std::byte* const> host) -> Status {
    ExpertMlpArgs on_host = args;
    on_host.ids = reinterpret_cast<const std::int32_t*>(host[0]);
    on_host.weights = reinterpret_cast<const float*>(host[1]);
    on_host.x = {reinterpret_cast<float*>(host[2]), args.x.rows, args.x.cols, args.x.cols};
    on_host.y = {reinterpret_cast<float*>(host[3]), args.y.rows, args.y.cols, args.y.cols};
    return host_->expert_mlp(on_host);
  };
  return vernier::run_on_host(device_, {arrays, /*returns_last=*/true, compute});
}

}  // namespace vernier
