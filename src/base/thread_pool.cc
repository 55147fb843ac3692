#include "base/thread_pool.h"

#include <chrono>
#include <system_error>

#include "base/cpu_topology.h"

namespace vernier {
namespace {

/// Long enough to bridge the gap between two operations of a step, short enough to be nothing beside a time slice when
/// a neighbour holds the CPU that we wait for.
constexpr std::chrono::microseconds kSpin{20};
/// A GPU's part of a layer between two loops takes less, the end of a step hardly more. Waking all threads takes a
/// hundred microseconds on a machine of many.
constexpr std::chrono::microseconds kBridge{400};
/// Bridgeable pauses make a habit where they are more than one in so many loops; longer ones halve it.
constexpr int kLoopsAPause = 8;
constexpr int kHabit = 2 * kLoopsAPause;
constexpr int kFirmestHabit = 8 * kLoopsAPause;
/// Pieces of a worker's part: what another can take over from a worker that the system has stopped running.
constexpr std::int64_t kPieces = 8;

// The gate: workers inside in the low bits, then whether it is open, then the number of the loop (which wraps around; a
// worker that misses exactly that many loops misses one more).
constexpr std::uint32_t kInside = 0xFFF;
constexpr std::uint32_t kOpen = 0x1000;
constexpr std::uint32_t kNumber = ~(kInside | kOpen);
constexpr std::uint32_t kNextNumber = 0x2000;
constexpr int kMaxThreads = static_cast<int>(kInside);

thread_local bool t_inside_loop = false;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Waits until done(value): a spin, towards which time counts that the system gives to others, then a futex sleep.
/// Returns the value.
template <class Done>
std::uint32_t wait_until(const std::atomic<std::uint32_t>& value, std::chrono::microseconds spin, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + spin;
  do {
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t now = value.load(std::memory_order_acquire);
      if (done(now)) return now;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (true) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (done(now)) return now;
    value.wait(now, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  const bool by_default = num_threads <= 0;
  if (by_default) num_threads = default_thread_count();
  num_threads = std::min(num_threads, kMaxThreads);
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(num_threads));
  const std::vector<std::vector<int>> places =
      by_default ? thread_places(num_threads) : std::vector<std::vector<int>>();
  workers_.reserve(static_cast<std::size_t>(num_threads) - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    try {
      workers_.emplace_back([this, worker] { work(worker); });
    } catch (const std::system_error&) {
      break;  // a thread limit of the system: fewer threads are slower, not wrong
    }
    if (!places.empty()) keep_on_cpus(workers_.back().native_handle(), places[static_cast<std::size_t>(worker)]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  gate_.fetch_add(kNextNumber, std::memory_order_release);
  gate_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::inside_loop() { return t_inside_loop; }

std::int64_t ThreadPool::piece_size(std::int64_t n, int parts, std::int64_t min_per_worker) {
  // Half of what makes a worker worthwhile is worth a turn at the counter.
  return std::max(n / parts / kPieces, std::max<std::int64_t>(min_per_worker / 2, 1));
}

void ThreadPool::note_pause(std::chrono::nanoseconds pause) {
  if (pause <= kSpin) {
    habit_ = std::max(habit_ - 1, 0);
  } else {
    habit_ = pause <= kBridge ? std::min(habit_ + kLoopsAPause, kFirmestHabit) : habit_ / 2;
  }
  stays_awake_.store(habit_ >= kHabit, std::memory_order_relaxed);
}

void ThreadPool::run(const Loop& loop) {
  note_pause(std::chrono::steady_clock::now() - last_end_);
  loop_ = loop;
  for (int part = 0; part < loop.parts; ++part) {
    const Range range = partition(loop.n, part, loop.parts);
    Share& share = shares_[static_cast<std::size_t>(part)];
    share.next.store(range.begin, std::memory_order_relaxed);
    share.end = range.end;
  }
  const std::uint32_t number = (gate_.load(std::memory_order_relaxed) & kNumber) + kNextNumber;
  // Closed and empty before: nobody else writes it. In one order with the look for sleepers that notify_all() takes: a
  // store that is only a release may come after it, and then they sleep on.
  gate_.store(number | kOpen, std::memory_order_seq_cst);
  gate_.notify_all();

  t_inside_loop = true;
  take_pieces(0);
  t_inside_loop = false;

  const std::uint32_t emptied = emptied_.load(std::memory_order_relaxed);
  if ((gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & kInside) != 0) {
    (void)wait_until(emptied_, kSpin, [emptied](std::uint32_t now) { return now != emptied; });
  }
  last_end_ = std::chrono::steady_clock::now();
}

void ThreadPool::take_pieces(int worker) {
  for (int i = 0; i < loop_.parts; ++i) {
    Share& share = shares_[static_cast<std::size_t>((worker + i) % loop_.parts)];
    while (true) {
      const std::int64_t begin = share.next.fetch_add(loop_.piece, std::memory_order_relaxed);
      if (begin >= share.end) break;
      loop_.call(loop_.context, {begin, std::min(begin + loop_.piece, share.end)}, worker);
    }
  }
}

bool ThreadPool::enter(std::uint32_t& seen) {
  while (true) {
    const auto spin = stays_awake_.load(std::memory_order_relaxed) ? kBridge : kSpin;
    std::uint32_t gate = wait_until(gate_, spin, [&](std::uint32_t now) { return (now & kNumber) != seen; });
    while ((gate & kOpen) != 0 && (gate & kNumber) != seen) {
      if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) {
        seen = gate & kNumber;
        return true;
      }
    }
    seen = gate & kNumber;  // too late for this one
    // Behind the exchange, which may have met the number that comes with the stop: after it comes none to wait for.
    if (stop_.load(std::memory_order_relaxed)) return false;
  }
}

void ThreadPool::leave() {
  const std::uint32_t left = gate_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  if ((left & (kOpen | kInside)) != 0) return;
  emptied_.fetch_add(1, std::memory_order_release);
  emptied_.notify_one();
}

void ThreadPool::work(int worker) {
  t_inside_loop = true;
  std::uint32_t seen = 0;
  while (enter(seen)) {
    if (worker < loop_.parts) take_pieces(worker);
    leave();
  }
}

}  // namespace vernier
