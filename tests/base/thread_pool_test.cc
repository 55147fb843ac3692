#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/cpu_topology.h"

namespace vernier {
namespace {

TEST(Partition, CoversEverythingOnceInOrder) {
  for (const std::int64_t n : {0, 1, 5, 7, 100}) {
    for (const int parts : {1, 2, 3, 7}) {
      std::int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const Range range = partition(n, part, parts);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end, range.begin);
        EXPECT_LE(range.end - range.begin, n / parts + 1);
        next = range.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(ThreadPool, VisitsEachItemOnce) {
  ThreadPool pool(4);
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 1000}) {
    std::vector<int> visits(static_cast<std::size_t>(n));
    pool.parallel_for(n, [&](std::int64_t begin, std::int64_t end, int worker) {
      EXPECT_TRUE(worker >= 0 && worker < pool.size());
      for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

TEST(ThreadPool, ManyShortLoopsWithPauses) {
  ThreadPool pool(3);
  std::vector<std::int64_t> sums(3);
  for (int round = 0; round < 3000; ++round) {
    pool.parallel_for(30, [&](std::int64_t begin, std::int64_t end, int worker) {
      sums[static_cast<std::size_t>(worker)] += end - begin;
    });
    // Now and then long enough for the workers to fall asleep.
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 90000);
}

TEST(ThreadPool, SmallLoopsStayOnTheCaller) {
  ThreadPool pool(4);
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  const auto count = [&](std::int64_t, std::int64_t, int) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++calls;
  };
  pool.parallel_for(100, count, 60);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, LoopsInsideLoopsRunInPlace) {
  ThreadPool pool(2);
  std::vector<int> visits(8);
  pool.parallel_for(2, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      pool.parallel_for(4, [&](std::int64_t from, std::int64_t to, int) {
        for (std::int64_t j = from; j < to; ++j) ++visits[static_cast<std::size_t>(4 * i + j)];
      });
    }
  });
  EXPECT_EQ(visits, std::vector<int>(8, 1));
}

TEST(ThreadPool, OthersTakeWhatAStoppedWorkerHasLeft) {
  ThreadPool pool(2);
  constexpr int kItems = 32;
  std::atomic<int> others{0};
  // The first item stands for a thread that isn't run: all others, its neighbours in its part too, get done meanwhile.
  pool.parallel_for(kItems, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i > begin || begin > 0) ++others;
    }
    while (begin == 0 && others.load() < kItems - 1) std::this_thread::yield();
  });
  EXPECT_EQ(others.load(), kItems - 1);
}

TEST(ThreadPool, MoreThreadsThanProcessors) {
  ThreadPool pool(16);
  std::vector<std::int64_t> values(64);
  for (int round = 1; round <= 300; ++round) {
    pool.parallel_for(64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += i;
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), std::int64_t{round} * 63 * 32);
  }
}

TEST(ThreadPool, NoWorkerNumberIsUsedTwiceAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(40, [&](std::int64_t, std::int64_t, int worker) {
      EXPECT_EQ(inside[static_cast<std::size_t>(worker)].fetch_add(1), 0);
      inside[static_cast<std::size_t>(worker)].fetch_sub(1);
    });
  }
}

// A worker that comes to a loop as it ends, and as the pool ends right behind it, must not wait for another loop.
TEST(ThreadPool, StopsWhileWorkersAreOnTheirWay) {
  for (int round = 0; round < 600; ++round) {
    ThreadPool pool(2 + round % 7);
    for (int loop = 0; loop < round % 4; ++loop) pool.parallel_for(3, [](std::int64_t, std::int64_t, int) {});
  }
}

TEST(ThreadPool, ThreadsStayAwakeOnlyWhereShortPausesAreAHabit) {
  ThreadPool pool(2);
  const auto loop = [&] { pool.parallel_for(2, [](std::int64_t, std::int64_t, int) {}); };
  const auto pause = [](std::chrono::microseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) continue;
  };
  for (int i = 0; i < 100; ++i) loop();
  EXPECT_FALSE(pool.stays_awake());
  // A pause may turn out longer on a busy machine.
  for (int i = 0; i < 10000 && !pool.stays_awake(); ++i) {
    loop();
    pause(std::chrono::microseconds(60));
  }
  EXPECT_TRUE(pool.stays_awake());
  for (int i = 0; i < 6; ++i) {
    pause(std::chrono::milliseconds(1));
    loop();
  }
  EXPECT_FALSE(pool.stays_awake());
}

TEST(ThreadPool, IdleThreadsUseNoTime) {
  ThreadPool pool(4);
  pool.parallel_for(4, [](std::int64_t, std::int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // past the spin
  const auto cpu_time = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(cpu_time() - before, 0.05);
}

TEST(CpuTopology, ParsesCpuLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector<int>{5});
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  for (const char* bad : {"a", "3-1", "-1", "1-", "0-99999999", "1,,2"})
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
}

TEST(CpuTopology, ParsesQuotas) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2.0);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  for (const char* none : {"max 100000", "-1 100000", "100000", "", "1 0"})
    EXPECT_EQ(parse_cpu_max(none), std::nullopt) << none;
}

TEST(CpuTopology, ThisMachineHasACpu) {
  EXPECT_FALSE(usable_cpus().empty());
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), static_cast<int>(usable_cpus().size()));
}

}  // namespace
}  // namespace vernier
