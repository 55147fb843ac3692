// A small pool for data-parallel loops: the caller works too, threads wait by a short spin and then sleep, and an idle
// pool burns no time. Not a task queue: one loop runs at a time, started by one thread.
#pragma once

#include <algorithm>
#include <atomic>
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

  /// Calls fn(begin, end, worker) once for each worker whose part of [0, n) isn't empty and returns when all are done;
  /// worker is in [0, size()) and may index scratch memory. The split depends on n, min_per_worker and size() alone:
  /// no worker gets fewer than `min_per_worker` items while another could take them. fn must not throw. One thread at
  /// a time may call this; a call from inside fn runs on the calling worker alone, as worker 0 of 1.
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
    void* context = nullptr;
    void (*call)(void* context, Range range, int worker) = nullptr;
  };

  [[nodiscard]] static bool inside_loop();
  void run(const Loop& loop);
  void work(int worker);

  std::vector<std::thread> workers_;
  Loop loop_;                                 ///< written before generation_ rises, read after
  std::atomic<std::uint32_t> generation_{0};  ///< rises by one for each loop, and to stop
  std::atomic<std::uint32_t> running_{0};     ///< workers that haven't finished the current loop
  std::atomic<bool> stop_{false};
};

}  // namespace vernier
