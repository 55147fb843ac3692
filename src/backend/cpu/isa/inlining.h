// What must become part of its caller for the sake of speed, and not where sanitizers look on: instrumented, the
// unrolled kernels of one unit take clang a quarter of an hour.
#pragma once

#ifdef VERNIER_ISA_OUT_OF_LINE
#define VN_INLINED
#else
#define VN_INLINED __attribute__((always_inline))
#endif
