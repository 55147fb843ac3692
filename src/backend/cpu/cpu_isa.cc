#include "backend/cpu/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
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

/// Whether the CPU has tiles and products of bf16 in them, and the system lets this process use them: it keeps room for
/// them only for those that ask.
bool has_amx() {
#if defined(__linux__)
  constexpr unsigned kBf16 = 1U << 22U;  // of EDX
  constexpr unsigned kTile = 1U << 24U;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!has_avx512() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  static const bool kAllowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return kAllowed;
#else
  return false;
#endif
}

/// Seconds for as many multiply-adds as keep a core busy for some 50 microseconds.
double time_of_products(const vernier_isa::Kernels& kernels) {
  constexpr std::int64_t kRounds = 16384;
  float sink[vernier_isa::kSinkFloats];
  for (float& value : sink) value = 0.5F;
  const auto start = std::chrono::steady_clock::now();
  const double operations = kernels.spin_multiply_adds(kRounds, sink);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / operations;
}

/// Whether these kernels' products take less time than AVX-512's of fp32 numbers.
bool are_faster(const vernier_isa::Kernels& kernels) {
  double theirs = time_of_products(kernels);
  double singles = time_of_products(vernier_isa::avx512_kernels());
  for (int i = 0; i < 2; ++i) {
    theirs = std::min(theirs, time_of_products(kernels));
    singles = std::min(singles, time_of_products(vernier_isa::avx512_kernels()));
  }
  return theirs < singles;
}

/// VDPBF16PS is twice as fast as fp32 instructions on some CPUs, half as fast on others. Both give the same results, so
/// nothing but time depends on this measurement.
bool pairs_are_faster() { return are_faster(vernier_isa::avx512bf16_kernels()); }
#endif

bool always() { return true; }

constexpr CpuIsa kList[] = {
#if defined(__x86_64__)
    // Much faster with many tokens, slower with one, and its order of sums shows in results: for those who ask.
    {"amx", has_amx, vernier_isa::amx_kernels, nullptr},
    {"avx512bf16", has_avx512bf16, vernier_isa::avx512bf16_kernels, pairs_are_faster},
    {"avx512", has_avx512, vernier_isa::avx512_kernels, always},
    {"avx2", has_avx2, vernier_isa::avx2_kernels, always},
#endif
    {"portable", always, vernier_isa::portable_kernels, always},
};

}  // namespace

std::span<const CpuIsa> cpu_isa_list() { return kList; }

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const CpuIsa& isa : kList) {
    if (isa.available()) names.push_back(isa.name);
  }
  return names;
}

Result<const vernier_isa::Kernels*> choose_kernels(std::string_view name) {
  std::string known;
  for (const CpuIsa& isa : kList) {
    if (name.empty() && isa.preferred != nullptr && isa.available() && isa.preferred()) return &isa.kernels();
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
