// Which instruction sets the CPU backend has kernels for, which of them this machine runs, and the choice between them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/isa/kernels.h"
#include "base/result.h"

namespace vernier {

struct CpuIsa {
  std::string_view name;
  bool (*available)();
  const vernier_isa::Kernels& (*kernels)();
  bool (*preferred)();  ///< whether it's worth choosing where nobody asks for it; only if available. Null: never
};

/// Best first; the last one runs everywhere.
[[nodiscard]] std::span<const CpuIsa> cpu_isa_list();

/// The names of those that this machine runs.
[[nodiscard]] std::vector<std::string_view> available_isas();

/// The kernels of the instruction set called `name`, or of the first available and preferred one where the name is
/// empty. Unknown names list the known ones; kUnsupported where this CPU lacks what it needs.
[[nodiscard]] Result<const vernier_isa::Kernels*> choose_kernels(std::string_view name);

}  // namespace vernier
