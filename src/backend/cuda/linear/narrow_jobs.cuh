// The work of narrow products, in pieces that a block takes one after the other.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/weight_ref.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// How a launch cuts its work and its blocks' shared memory.
struct NarrowPlan {
  int jobs = 0;  ///< of a linear; of experts: of each group
  int rows = 0;  ///< of a job
  /// The first job of each output, or of experts' gate and up.
  int first_job[LinearBatch::kMost] = {};
  int num_matrices = 1;
  int tokens = 0;   ///< of a run, at most
  int columns = 0;  ///< of B: their terms
  int stride = 0;   ///< of a column of the input in shared memory
};

/// Some rows of a matrix times some rows of the input.
struct NarrowJob {
  int which = 0;  ///< matrix: a linear's output; of experts: gate or up
  int tile = 0;   ///< rows [tile * plan.rows, ..) of it
  int first_token = 0;
  int end_token = 0;
  int expert = 0;
  int group = 0;
  int first_place = 0;  ///< of the group
};

/// Of a linear's outputs, for one tile of tokens.
struct LinearJobs {
  static constexpr bool kOneRun = true;  ///< a job's tokens fit into one run
  const LinearBatch& batch;
  const NarrowPlan& plan;

  [[nodiscard]] __device__ int count() const { return plan.jobs; }
  [[nodiscard]] __device__ const InputView& x() const { return batch.x; }
  [[nodiscard]] __device__ NarrowJob job(int number) const {
    NarrowJob job;
    while (job.which + 1 < plan.num_matrices && number >= plan.first_job[job.which + 1]) ++job.which;
    job.tile = number - plan.first_job[job.which];
    job.first_token = static_cast<int>(blockIdx.y) * plan.tokens;
    job.end_token = min(job.first_token + plan.tokens, batch.tokens);
    return job;
  }
  [[nodiscard]] __device__ const MatrixRef& matrix(const NarrowJob&, int which) const { return batch.matrix[which]; }
  [[nodiscard]] __device__ std::int64_t x_row(const NarrowJob&, int token) const { return token; }
  [[nodiscard]] __device__ std::int64_t y_row(const NarrowJob&, int token) const { return token; }
  [[nodiscard]] __device__ float* y(const NarrowJob& job, int token) const {
    return batch.y[job.which] + token * batch.y_stride[job.which];
  }
  [[nodiscard]] __device__ bool accumulate(const NarrowJob& job) const { return batch.accumulate[job.which]; }
};

/// Of the used experts. A job has no tokens where there are fewer groups or the expert is unknown.
struct ExpertJobs {
  static constexpr bool kOneRun = false;
  const ExpertBatch& batch;
  const NarrowPlan& plan;
  int groups;

  [[nodiscard]] __device__ int count() const { return groups * plan.jobs; }
  [[nodiscard]] __device__ const InputView& x() const { return batch.x; }
  [[nodiscard]] __device__ bool direct() const { return batch.groups.count == nullptr; }
  [[nodiscard]] __device__ NarrowJob job(int number) const {
    NarrowJob job;
    job.group = number / plan.jobs;
    job.tile = number - job.group * plan.jobs;
    job.which = plan.num_matrices > 1 && job.tile >= plan.first_job[1] ? 1 : 0;
    job.tile -= plan.first_job[job.which];
    job.expert = batch.groups.expert[job.group];
    if (job.expert < 0 || job.expert >= batch.experts) return job;
    job.first_place = direct() ? job.group : batch.groups.first[job.group];
    job.end_token = direct() ? 1 : batch.groups.first[job.group + 1] - job.first_place;
    return job;
  }
  [[nodiscard]] __device__ const MatrixRef& matrix(const NarrowJob& job, int which) const {
    return batch.matrix[which][job.expert];
  }
  [[nodiscard]] __device__ std::int64_t x_row(const NarrowJob& job, int token) const {
    if (batch.x_by_place) return job.first_place + token;
    return (direct() ? job.group : batch.groups.uses[job.first_place + token]) / batch.top_k;
  }
  [[nodiscard]] __device__ std::int64_t y_row(const NarrowJob& job, int token) const {
    const bool by_use = batch.y_by_use && !direct();
    return by_use ? batch.groups.uses[job.first_place + token] : job.first_place + token;
  }
  [[nodiscard]] __device__ float* y(const NarrowJob& job, int token) const {
    return batch.y[job.which] + y_row(job, token) * batch.y_stride;
  }
  [[nodiscard]] __device__ bool accumulate(const NarrowJob&) const { return false; }
};

/// A run's tokens: [first, first + count) of the job.
struct NarrowTokens {
  int first = 0;
  int count = 0;
};

/// A block's way through its jobs, and through the tokens of each, plan.tokens at a time. Jobs are looked up again when
/// they are needed: registers are dearer.
template <class Jobs>
class Walk {
 public:
  __device__ explicit Walk(const Jobs& jobs) : number_(static_cast<int>(blockIdx.x)) { enter(jobs); }
  [[nodiscard]] __device__ bool ended(const Jobs& jobs) const { return number_ >= jobs.count(); }
  [[nodiscard]] __device__ NarrowJob job(const Jobs& jobs) const { return jobs.job(number_); }
  [[nodiscard]] __device__ NarrowTokens tokens(const Jobs& jobs) const {
    if constexpr (Jobs::kOneRun) {
      const NarrowJob job = jobs.job(number_);
      return {job.first_token, job.end_token - job.first_token};
    } else {
      return {first_token_, min(jobs.plan.tokens, end_token_ - first_token_)};
    }
  }
  /// To the tokens that follow, or the next job that has any.
  __device__ void step(const Jobs& jobs) {
    if constexpr (!Jobs::kOneRun) {
      first_token_ += jobs.plan.tokens;
      if (first_token_ < end_token_) return;
    }
    number_ += static_cast<int>(gridDim.x);
    enter(jobs);
  }

 private:
  __device__ void enter(const Jobs& jobs) {
    if constexpr (!Jobs::kOneRun) {
      for (; !ended(jobs); number_ += static_cast<int>(gridDim.x)) {
        const NarrowJob job = jobs.job(number_);
        first_token_ = job.first_token;
        end_token_ = job.end_token;
        if (first_token_ < end_token_) return;
      }
    }
  }

  int number_;
  int first_token_ = 0;
  int end_token_ = 0;
};

/// What a block does at a time.
template <class Jobs>
struct NarrowRun {
  const Jobs& jobs;
  NarrowJob job;
  NarrowTokens tokens;
};

}  // namespace vernier::cuda
