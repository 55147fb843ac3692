#include "base/thread_pool.h"

#include <chrono>
#include <system_error>

#include "base/cpu_topology.h"

namespace vernier {
namespace {

/// Long enough to bridge the gap between two operations of a step, short enough to be nothing beside a time slice when
/// a neighbour holds the CPU that we wait for.
constexpr std::chrono::microseconds kSpin{20};

thread_local bool t_inside_loop = false;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` differs from `old`: a short spin, then a futex sleep.
void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads <= 0) num_threads = default_thread_count();
  workers_.reserve(static_cast<std::size_t>(num_threads) - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    try {
      workers_.emplace_back([this, worker] { work(worker); });
    } catch (const std::system_error&) {
      break;  // a thread limit of the system: fewer threads are slower, not wrong
    }
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::inside_loop() { return t_inside_loop; }

void ThreadPool::run(const Loop& loop) {
  loop_ = loop;
  // Every worker reports, also one without a part: loop_ may be overwritten only when nobody reads it any more.
  running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();

  t_inside_loop = true;
  loop.call(loop.context, partition(loop.n, 0, loop.parts), 0);
  t_inside_loop = false;

  while (true) {
    const std::uint32_t left = running_.load(std::memory_order_acquire);
    if (left == 0) return;
    wait_while_equal(running_, left);
  }
}

void ThreadPool::work(int worker) {
  t_inside_loop = true;
  std::uint32_t seen = 0;
  while (true) {
    wait_while_equal(generation_, seen);
    ++seen;  // one loop at a time, so none was missed
    if (stop_.load(std::memory_order_relaxed)) return;
    if (worker < loop_.parts) loop_.call(loop_.context, partition(loop_.n, worker, loop_.parts), worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace vernier
