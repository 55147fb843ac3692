// What the files beside the weights say about quantisation: `quantization_config` of config.json and
// hf_quant_config.json. Tensors are read as they are (quant_dialect.h); this is only held against them afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/module_list.h"
#include "checkpoint/quant_dialect.h"

namespace vernier {

/// What a config declares about one module.
struct Declared {
  Scheme scheme = Scheme::kPlain;
  std::int64_t group_size = 0;  ///< 0: not said
};

/// The quantisation that a checkpoint declares. Not copyable; immutable, safe to read from any thread.
class QuantConfig {
 public:
  /// From the texts' parsed values; either may be null. kUnsupported for methods and algorithms that Vernier doesn't
  /// run, which are named; kCorrupt for fields of the wrong kind.
  static Result<QuantConfig> parse(const Json* config, const Json* hf_quant_config);

  /// False: the files say nothing about quantisation.
  [[nodiscard]] bool declared() const { return declared_; }
  /// "modelopt", "compressed-tensors", "fp8", "gpt-oss"; empty when nothing is declared.
  [[nodiscard]] const std::string& dialect() const { return dialect_; }
  /// Where it was said: "config.json" or "hf_quant_config.json".
  [[nodiscard]] const std::string& source() const { return source_; }
  /// The declared `weight_block_size` or `block_structure`; 0: none.
  [[nodiscard]] std::int64_t block_rows() const { return block_rows_; }
  [[nodiscard]] std::int64_t block_cols() const { return block_cols_; }

  /// What is declared about a module, or nothing where the config can't be held to anything.
  [[nodiscard]] std::optional<Declared> about(std::string_view module) const;
  /// True when the lists can also be read in a way that makes `found` right for a module about which about() says
  /// something else (see ModuleList::suggests). Slow.
  [[nodiscard]] bool may_mean(std::string_view module, Scheme found) const;

 private:
  struct Group {
    Declared declared;
    bool all_linear = false;  // applies to every linear module
    ModuleList targets;
  };

  Status parse_modelopt(const Json& object, bool is_hf_file);
  Status parse_quantized_layers(const Json& layers);
  Status parse_compressed(const Json& object);
  Status parse_compressed_group(const Json& group, std::string_view name);
  Status parse_fp8(const Json& object);
  Status parse_gpt_oss(const Json& object);
  Status parse_block_size(const Json& value, std::string_view field);
  Status add_excluded(const Json& object, std::string_view field, ModuleList::Below below);

  bool declared_ = false;
  std::string dialect_;
  std::string source_ = "config.json";
  std::int64_t block_rows_ = 0;
  std::int64_t block_cols_ = 0;
  ModuleList excluded_;
  std::vector<Group> groups_;
  bool experts_only_ = false;  // nothing but experts is quantised
};

}  // namespace vernier
