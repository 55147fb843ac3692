// Checks of operation arguments that every backend makes first: shapes that don't fit each other are a bug of the
// caller (kInternal), found here instead of as a wild read in a kernel. Contents of backend memory are not looked at.
#pragma once

#include "backend/backend.h"

namespace vernier {

[[nodiscard]] Status check_args(const EmbedArgs& args);
[[nodiscard]] Status check_args(const RmsNormArgs& args);
[[nodiscard]] Status check_args(const LinearArgs& args);
[[nodiscard]] Status check_args(const GatedMlpArgs& args);
[[nodiscard]] Status check_args(const RopeStoreArgs& args);
[[nodiscard]] Status check_args(const AttentionArgs& args);
[[nodiscard]] Status check_args(const GatedActivationArgs& args);
[[nodiscard]] Status check_args(const RouteArgs& args);
[[nodiscard]] Status check_args(const ExpertMlpArgs& args);
[[nodiscard]] Status check_args(const CombineArgs& args);
[[nodiscard]] Status check_args(const SoftCapArgs& args);
[[nodiscard]] Status check_args(const SigmoidGateArgs& args);
[[nodiscard]] Status check_args(const GatedDeltaNetArgs& args);
[[nodiscard]] Status check_args(const RankArgs& args);

/// The norm of a linear's input as an operation of its own.
[[nodiscard]] inline RmsNormArgs norm_of(const LinearArgs& args) {
  return {.x = args.x, .weight = args.norm.weight, .eps = args.norm.eps, .y = args.norm.y};
}
[[nodiscard]] inline RmsNormArgs norm_of(const RouteArgs& args) {
  return {.x = args.x, .weight = args.norm.weight, .eps = args.norm.eps, .y = args.norm.y};
}
/// The linear that follows it.
[[nodiscard]] inline LinearArgs after_norm(const LinearArgs& args) { return {args.norm.y, args.outputs}; }
[[nodiscard]] inline RouteArgs after_norm(RouteArgs args) {
  args.x = args.norm.y;
  args.norm = {};
  return args;
}

}  // namespace vernier
