// Marks functions that CUDA kernels call too. These headers compile under nvcc without relaxed constexpr, so every
// function that device code reaches carries the mark, and none uses a library function.
#pragma once

#if defined(__CUDACC__)
#define VN_HOST_DEVICE __host__ __device__
#else
#define VN_HOST_DEVICE
#endif
