// Kernels for CPUs with AMX tiles of bf16 besides what avx512.cc needs: those of avx512.cc, and tiles for linears whose
// weights bf16 holds exactly and whose inputs are rounded to it.
// The format headers are compiled under another name here, so that no inline function of this unit can stand in for one
// that the rest of the program runs on any CPU.
#define vernier vernier_amx  // NOLINT(readability-identifier-naming)

#include "backend/cpu/isa/lanes_avx512.h"
// The lanes come first: the kernels are written over them.
#include "backend/cpu/isa/tiles_impl.h"

namespace {

vernier_isa::Kernels make_kernels() {
  vernier_isa::Kernels kernels = vernier_isa::avx512_kernels();
  kernels.name = "amx";
  kernels.row_kernels = find_tile_kernels;
  kernels.unrounded = &vernier_isa::avx512_kernels();
  kernels.spin_multiply_adds = spin_tile_products;
  return kernels;
}

}  // namespace

namespace vernier_isa {

const Kernels& amx_kernels() {
  static const Kernels kTable = make_kernels();
  return kTable;
}

}  // namespace vernier_isa
