#include "backend/cpu/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <string>

namespace vernier {
namespace {

#if defined(__x86_64__)
bool has_f16c() {  // which not every compiler's __builtin_cpu_supports knows
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
// The compiler's check asks CPUID, and whether the system saves the wide registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

constexpr CpuIsa kList[] = {
#if defined(__x86_64__)
    {"avx512bf16", has_avx512bf16, vernier_isa::avx512bf16_kernels},
    {"avx512", has_avx512, vernier_isa::avx512_kernels},
    {"avx2", has_avx2, vernier_isa::avx2_kernels},
#endif
    {"portable", [] { return true; }, vernier_isa::portable_kernels},
};

}  // namespace

std::span<const CpuIsa> cpu_isa_list() { return kList; }

Result<const vernier_isa::Kernels*> choose_kernels(std::string_view name) {
  std::string known;
  for (const CpuIsa& isa : kList) {
    if (name.empty() && isa.available()) return &isa.kernels();
    if (name == isa.name) {
      if (isa.available()) return &isa.kernels();
      return fail(ErrorCode::kUnsupported, "this CPU doesn't have the instruction set '{}'", name);
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", isa.name);
  }
  return fail_with_hint(ErrorCode::kInvalidArgument, fmt::format("known instruction sets: {}", known),
                        "unknown instruction set '{}'", escape(name));
}

}  // namespace vernier
