#include "backend/cuda/cuda_error.h"

namespace vernier::cuda {
namespace {

/// The call without its arguments: "cudaMemcpyAsync(to, from, ...)" says enough as "cudaMemcpyAsync".
std::string_view without_arguments(std::string_view what) {
  return what.starts_with("cuda") ? what.substr(0, what.find('(')) : what;
}

}  // namespace

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  // The runtime repeats the error of a call in cudaGetLastError() until somebody asks.
  (void)cudaGetLastError();
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  return fail(code, "cuda: {}: {} ({})", without_arguments(what), cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace vernier::cuda
