// A small pool for data-parallel loops: the caller works too, threads take pieces of a loop as they come to it, wait by
// a short spin and then sleep, and an idle pool burns no time. Where loops keep coming after short pauses (a GPU works
// in between), threads stay awake for them. Not a task queue: one loop runs at a time, started by one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace vernier {

/// The part of [0, n) that belongs to `part` of `parts`: contiguous, sizes differ by at most one.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
[[nodiscard]] constexpr Range partition(std::int64_t n, int part, int parts) {
  const std::int64_t base = n / parts;
  const std::int64_t rest = n % parts;
  const std::int64_t begin = part * base + std::min<std::int64_t>(part, rest);
  return {begin, begin + base + (part < rest ? 1 : 0)};
}

class ThreadPool {
 public:
  /// `num_threads` counts the caller's thread; 0 means default_thread_count(). Where the system refuses to start that
  /// many, the pool has fewer.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads that share a loop, the caller's included.
  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }
  /// Whether threads wait awake through pauses of less than half a millisecond, because loops lately had such between.
  [[nodiscard]] bool stays_awake() const { return stays_awake_.load(std::memory_order_relaxed); }

  /// Calls fn(begin, end, worker) for pieces that together make up [0, n) and returns when all are done; worker is in
  /// [0, size()), belongs to one thread and may index scratch memory. Each worker begins with a part of its own and
  /// helps the others then, so which worker gets a piece is open: what fn computes for an item must not depend on it. A
  /// thread that the system doesn't run is waited for only if it is within a piece. No more workers take part than get
  /// `min_per_worker` items each. fn must not throw. One thread at a time may call this; a call from inside fn runs on
  /// the calling worker alone, as worker 0 of 1.
  template <class Fn>
  void parallel_for(std::int64_t n, Fn&& fn, std::int64_t min_per_worker = 1) {
    if (n <= 0) return;
    const std::int64_t most = std::max<std::int64_t>(n / std::max<std::int64_t>(min_per_worker, 1), 1);
    const int parts = static_cast<int>(std::min<std::int64_t>(size(), most));
    if (parts == 1 || inside_loop()) {
      fn(std::int64_t{0}, n, 0);
      return;
    }
    using Callable = std::remove_reference_t<Fn>;
    Loop loop;
    loop.parts = parts;
    loop.n = n;
    loop.piece = piece_size(n, parts, min_per_worker);
    loop.context = const_cast<void*>(static_cast<const void*>(std::addressof(fn)));
    loop.call = [](void* context, Range range, int worker) {
      (*static_cast<Callable*>(context))(range.begin, range.end, worker);
    };
    run(loop);
  }

 private:
  struct Loop {
    int parts = 0;
    std::int64_t n = 0;
    std::int64_t piece = 1;
    void* context = nullptr;
    void (*call)(void* context, Range range, int worker) = nullptr;
  };
  /// The part of a loop that a worker begins with; others take from it when they have none left.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  [[nodiscard]] static bool inside_loop();
  /// Takes notice of the time between two loops.
  void note_pause(std::chrono::nanoseconds pause);
  [[nodiscard]] static std::int64_t piece_size(std::int64_t n, int parts, std::int64_t min_per_worker);
  void run(const Loop& loop);
  /// Takes pieces until none is left.
  void take_pieces(int worker);
  void work(int worker);
  /// Counts this thread in if a loop that it hasn't `seen` is open; false when the pool stops.
  [[nodiscard]] bool enter(std::uint32_t& seen);
  void leave();

  std::vector<std::thread> workers_;
  std::chrono::steady_clock::time_point last_end_;  ///< of a loop
  int habit_ = 0;                                   ///< of pauses that are worth staying awake
  std::atomic<bool> stays_awake_{false};
  Loop loop_;                        ///< written while the gate is closed and nobody is inside
  std::unique_ptr<Share[]> shares_;  ///< [size]
  /// Number of the loop, whether it is open, and how many workers are inside; one word, so that they change together.
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  alignas(64) std::atomic<std::uint32_t> emptied_{0};  ///< rises when the last worker leaves a closed gate
  std::atomic<bool> stop_{false};
};

}  // namespace vernier
