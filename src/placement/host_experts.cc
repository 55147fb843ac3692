#include "placement/host_experts.h"

namespace vernier {

Status HostExpertExecutor::run(std::int32_t /*layer*/, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  ExpertMlpArgs on_host = args;
  ids_.resize(static_cast<std::size_t>(args.x.rows * args.top_k));
  VN_TRY(device_.copy_to_host(ids_.data(), args.ids, ids_.size() * sizeof(std::int32_t)));
  on_host.ids = ids_.data();
  VN_ASSIGN(on_host.x, x_.download(args.x));
  // y travels too, so that the sum has the order that it has on one device.
  VN_ASSIGN(on_host.y, y_.download(args.y));
  const MatrixView weights{const_cast<float*>(args.weights), args.x.rows, args.top_k, args.top_k};
  VN_ASSIGN(const MatrixView host_weights, weights_.download(weights));
  on_host.weights = host_weights.data;
  VN_TRY(host_->expert_mlp(on_host));
  return y_.upload(args.y);
}

}  // namespace vernier
