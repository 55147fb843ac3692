// Kernels for CPUs with AVX-512 F, BW, VL and DQ.
// The format headers are compiled under another name here, so that no inline function of this unit can stand in for one
// that the rest of the program runs on any CPU.
#define vernier vernier_avx512  // NOLINT(readability-identifier-naming)

#include "backend/cpu/isa/lanes_avx512.h"
// The lanes come first: the kernels are written over them.
#include "backend/cpu/isa/kernels_impl.h"

namespace vernier_isa {

const Kernels& avx512_kernels() { return kKernels; }

}  // namespace vernier_isa
