#include "backend/cuda/device_memory.h"

#include <unistd.h>

#include <cstdint>

#include "backend/cuda/cuda_error.h"

namespace vernier::cuda {
namespace {

double gib(std::size_t bytes) { return static_cast<double>(bytes) / 1073741824.0; }

/// What systems answer that won't lock so much memory, or any.
bool is_refusal(cudaError_t error) {
  return error == cudaErrorMemoryAllocation || error == cudaErrorNotPermitted || error == cudaErrorNotSupported ||
         error == cudaErrorOperatingSystem;
}

}  // namespace

Result<Buffer> allocate_device(std::size_t size_bytes, std::string_view what) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, size_bytes == 0 ? 1 : size_bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) (void)cudaGetLastError();
    return fail_with_hint(ErrorCode::kOutOfMemory,
                          "a smaller context (-c), fewer sequences or another --experts placement needs less",
                          "cuda: {} needs {} bytes ({:.3f} GiB) of GPU memory; {:.3f} of {:.3f} GiB are free", what,
                          size_bytes, gib(size_bytes), gib(free_bytes), gib(total_bytes));
  }
  VN_TRY(cuda_status(error, "cudaMalloc"));
  return Buffer(data, size_bytes, [](void* memory) { (void)cudaFree(memory); });
}

Result<Buffer> allocate_pinned(std::size_t size_bytes, std::string_view what) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, size_bytes == 0 ? 1 : size_bytes);
  if (is_refusal(error)) {
    (void)cudaGetLastError();
    return fail(ErrorCode::kOutOfMemory, "cuda: {} needs {} bytes of page-locked host memory, which the system refuses",
                what, size_bytes);
  }
  VN_TRY(cuda_status(error, "cudaMallocHost"));
  return Buffer(data, size_bytes, [](void* memory) { (void)cudaFreeHost(memory); });
}

Result<Buffer> lock_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size() + page - 1) / page * page;
  auto* const memory = reinterpret_cast<void*>(first);
  // Whatever the reason, the bytes are as good to the host as before.
  if (cudaHostRegister(memory, end - first, cudaHostRegisterReadOnly | cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    return fail(ErrorCode::kOutOfMemory, "cuda: the system refuses to page-lock {} bytes", end - first);
  }
  return Buffer(memory, end - first, [](void* locked) {
    (void)cudaDeviceSynchronize();  // a copy from it may be under way
    (void)cudaHostUnregister(locked);
  });
}

}  // namespace vernier::cuda
