#include "placement/weight_traffic.h"

#include <string_view>

#include "format/decode.h"

namespace vernier {
namespace {

void add(const Weight& weight, WeightTraffic::Share& share) {
  share.bytes += storage_bytes(weight);
  share.values += static_cast<std::uint64_t>(weight.rows * weight.cols);
}

}  // namespace

WeightTraffic weight_traffic(const std::unordered_map<std::string, std::vector<Weight>>& matrices) {
  WeightTraffic traffic;
  traffic.head_is_embedding = !matrices.contains("head");
  for (const auto& [role, weights] : matrices) {
    const std::string_view name = role;
    if (name.starts_with("mtp.")) continue;
    const bool is_table = name == "embed" || name == "ple.embed";
    for (const Weight& weight : weights) {
      if (is_table) traffic.embedding_row_bytes += storage_bytes(weight) / static_cast<std::uint64_t>(weight.rows);
      if (name == "head" || (name == "embed" && traffic.head_is_embedding)) {
        add(weight, traffic.head);
      } else if (name.find("experts.") != std::string_view::npos) {
        add(weight, traffic.experts);
      } else if (!is_table) {
        add(weight, traffic.trunk);
      }
    }
  }
  return traffic;
}

}  // namespace vernier
