#include "backend/cuda/cuda_backend.h"

#include <utility>

#include "backend/check_args.h"
#include "backend/cuda/ceilings.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/device_probe.h"
#include "backend/cuda/experts/expert_slots.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/stream_copy_lane.h"
#include "backend/cuda_entry.h"
namespace vernier::cuda {

CudaBackend::CudaBackend(int device, cudaStream_t stream, Precision precision)
    : copy_memory_([](std::size_t size) { return allocate_pinned(size, "memory for copies"); }),
      scratch_(stream),
      uploads_(stream, copy_memory_),
      tables_(uploads_, stream),
      context_{.device = device,
               .stream = stream,
               .precision = precision,
               .scratch = scratch_,
               .uploads = uploads_,
               .tables = tables_},
      detours_(context_, copy_memory_),
      placements_(context_, copy_memory_) {}

CudaBackend::~CudaBackend() {
  if (!enter()) return;
  (void)cudaStreamSynchronize(context_.stream);
  (void)cudaStreamDestroy(context_.stream);
}

Result<std::unique_ptr<CudaBackend>> CudaBackend::create(int device, const BackendOptions& options) {
  const std::string reason = why_unavailable(device);
  if (!reason.empty()) return fail(ErrorCode::kDevice, "cuda: {}", reason);
  VN_CUDA(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  VN_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(device, stream, options.precision));
  backend->use_graphs_ = options.graphs;
  CudaContext& context = backend->context_;
  int major = 0;
  int minor = 0;
  int shared = 0;
  VN_CUDA(cudaDeviceGetAttribute(&context.num_sms, cudaDevAttrMultiProcessorCount, device));
  VN_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  VN_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  VN_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  context.capability = 10 * major + minor;
  context.max_shared_bytes = static_cast<std::size_t>(shared);
  VN_TRY(backend->uploads_.prepare());
  return backend;
}

Status CudaBackend::enter() const { return cuda_status(cudaSetDevice(context_.device), "cudaSetDevice"); }

MemoryInfo CudaBackend::memory() const {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (!enter() || !cuda_status(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo")) return {};
  return {.total_bytes = total_bytes, .available_bytes = free_bytes};
}

Result<Ceilings> CudaBackend::measure_ceilings(BenchClock /*clock*/) {
  constexpr std::size_t kReadBytes = std::size_t{1} << 30U;
  VN_TRY(enter());
  if (read_memory_.size() == 0) {
    auto buffer = allocate_device(kReadBytes, "measuring the read rate");
    if (!buffer) return Ceilings{};
    VN_CUDA(cudaMemsetAsync(buffer->data(), 1, kReadBytes, context_.stream));
    read_memory_ = std::move(*buffer);
  }
  return cuda::measure_ceilings(context_, read_memory_);
}

Status CudaBackend::supports(FormatId format) const { return check_format(format); }

Result<Buffer> CudaBackend::allocate(std::size_t size_bytes) {
  VN_TRY(enter());
  return allocate_device(size_bytes, "a buffer");
}

Result<Weight> CudaBackend::place(const Weight& host) {
  VN_TRY(enter());
  return place_weight(context_, host);
}

Status CudaBackend::copy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind) {
  VN_TRY(enter());
  if (size_bytes == 0) return {};
  VN_CUDA(cudaMemcpyAsync(to, from, size_bytes, kind, context_.stream));
  return cuda_status(cudaStreamSynchronize(context_.stream), "copying between host and GPU");
}

Status CudaBackend::copy_to_device(void* device, const void* host, std::size_t size_bytes) {
  return copy(device, host, size_bytes, cudaMemcpyHostToDevice);
}

Status CudaBackend::copy_to_host(void* host, const void* device, std::size_t size_bytes) {
  return copy(host, device, size_bytes, cudaMemcpyDeviceToHost);
}

Status CudaBackend::synchronize() {
  VN_TRY(enter());
  return cuda_status(cudaStreamSynchronize(context_.stream), "waiting for the GPU");
}

Status CudaBackend::run_step(const RepeatableStep& step, const std::function<Status()>& work) {
  if (!use_graphs_ || step.slices.empty()) return work();
  VN_TRY(enter());
  return graphs_.run(context_, detours_, step, work);
}

Result<Buffer> CudaBackend::allocate_host(std::size_t size_bytes) {
  VN_TRY(enter());
  return copy_memory_.allocate(size_bytes);
}

std::vector<std::string> CudaBackend::warnings() const {
  const std::string warning = copy_memory_.warning();
  if (warning.empty()) return {};
  return {warning};
}

std::uint64_t CudaBackend::record_bytes(const Weight& host) const { return cuda::record_bytes(host); }

Result<Weight> CudaBackend::pack(const Weight& host, std::byte* record) {
  VN_TRY(enter());
  return pack_record(context_, host, record);
}

Result<std::unique_ptr<CopyLane>> CudaBackend::create_copy_lane() {
  VN_TRY(enter());
  return StreamCopyLane::create(context_.device, context_.stream);
}

Status CudaBackend::take_detour(const HostDetour& detour) {
  VN_TRY(enter());
  return detours_.run(detour);
}

Result<Buffer> CudaBackend::lock(std::span<const std::byte> bytes) {
  VN_TRY(enter());
  return lock_pages(bytes);
}

Result<std::byte*> CudaBackend::stage(std::int32_t parcel, std::size_t size_bytes) {
  VN_TRY(enter());
  return placements_.stage(parcel, size_bytes);
}

Status CudaBackend::send(std::int32_t parcel, std::span<const Run> runs) {
  VN_TRY(enter());
  return placements_.send(parcel, runs);
}

Status CudaBackend::place(std::int32_t parcel, std::span<const Part> parts) {
  VN_TRY(enter());
  return placements_.place(parcel, parts);
}

Result<std::vector<Weight>> CudaBackend::finish() {
  VN_TRY(enter());
  return placements_.finish();
}

Result<std::unique_ptr<ExpertSlots>> CudaBackend::create_expert_slots(const ExpertSlotsSetup& setup) {
  VN_TRY(enter());
  return CudaExpertSlots::create(context_, setup);
}

Status CudaBackend::embed(const EmbedArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::embed(context_, args);
}

Status CudaBackend::rms_norm(const RmsNormArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::rms_norm(context_, args);
}

Status CudaBackend::linear(const LinearArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::linear(context_, args);
}

Status CudaBackend::rope_and_store_kv(const RopeStoreArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.q.rows == 0 ? Status() : cuda::rope_and_store_kv(context_, args);
}

Status CudaBackend::attention(const AttentionArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.q.rows == 0 ? Status() : cuda::attention(context_, args);
}

Status CudaBackend::gated_activation(const GatedActivationArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.gate.rows == 0 ? Status() : cuda::gated_activation(context_, args);
}

Status CudaBackend::gated_mlp(const GatedMlpArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  if (args.x.rows == 0) return {};
  VN_ASSIGN(const bool done, cuda::fused_mlp(context_, args));
  return done ? Status() : Backend::gated_mlp(args);
}

Status CudaBackend::route_experts(const RouteArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::route_experts(context_, args);
}

Status CudaBackend::expert_mlp(const ExpertMlpArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::expert_mlp(context_, args);
}

Status CudaBackend::combine(const CombineArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.x.rows == 0 ? Status() : cuda::combine(context_, args);
}

Status CudaBackend::soft_cap(const SoftCapArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.y.rows == 0 ? Status() : cuda::soft_cap(context_, args);
}

Status CudaBackend::sigmoid_gate(const SigmoidGateArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.y.rows == 0 ? Status() : cuda::sigmoid_gate(context_, args);
}

Status CudaBackend::gated_delta_net(const GatedDeltaNetArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.qkv.rows == 0 ? Status() : cuda::gated_delta_net(context_, args);
}

Status CudaBackend::rank_logits(const RankArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(enter());
  return args.logits.rows == 0 ? Status() : cuda::rank_logits(context_, args);
}

}  // namespace vernier::cuda

namespace vernier {

BackendEntry cuda_backend_entry() {
  return {.name = "cuda",
          .summary = "NVIDIA GPUs",
          .unavailable = [] { return cuda::why_unavailable(0); },
          .create = [](const BackendOptions& options) -> Result<std::unique_ptr<Backend>> {
            return cuda::CudaBackend::create(options.device_index, options);
          },
          .details = [] { return cuda::describe_devices(); },
          .has_index = true};
}

}  // namespace vernier
