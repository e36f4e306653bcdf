// Batching: closed forms that cover each epoch exactly once, for any number of replicas.
#include <dhp/data/batching.hpp>
#include <tests/support/test.hpp>

TEST_CASE("batching: an epoch has every sample once, in contiguous micro-batches") {
  for (const std::int64_t size : {1, 5, 28, 29, 100})
    for (const std::int64_t micro : {1, 3, 4})
      for (const int replicas : {1, 2, 3, 8}) {
        const dhp::Batching batching(size, 7 * micro, micro);
        std::vector<int> hits(static_cast<std::size_t>(size), 0);
        for (std::int64_t step = 1; step <= batching.steps_per_epoch(); ++step) {
          const auto plan = batching.plan(step);
          CHECK(plan.step == step);
          std::int64_t next = 0;
          for (int replica = 0; replica < replicas; ++replica) {
            const auto mine = plan.assigned_to(replica, replicas);
            CHECK(mine.first == next);
            next = mine.last;
            for (auto k = mine.first; k < mine.last; ++k) {
              const auto samples = plan.samples_of(k);
              CHECK(samples.first == k * micro);
              CHECK(samples.size() >= 1);
              CHECK(samples.size() <= micro);
              for (auto at = samples.first; at < samples.last; ++at)
                ++hits[static_cast<std::size_t>(plan.first + at)];
            }
          }
          CHECK(next == plan.micro_batches());
        }
        for (const int hit : hits) CHECK(hit == 1);
      }
}

TEST_CASE("batching: a new global batch size continues at the next sample") {
  for (const std::int64_t size : {10, 23, 96})
    for (const std::int64_t done : {0, 1, 2, 5, 9})
      for (const std::int64_t global : {2, 4, 12}) {
        const dhp::Batching before(size, 6, 2);
        dhp::Batching batching(size, global, 2);
        batching.resume_at(before.after(done));
        std::vector<int> hits(static_cast<std::size_t>(3 * size), 0);
        const auto take = [&](const dhp::StepPlan& plan) {
          for (auto at = plan.first; at < plan.first + plan.samples; ++at)
            if (plan.epoch < 3) ++hits[static_cast<std::size_t>(plan.epoch * size + at)];
        };
        for (std::int64_t step = 1; step <= done; ++step) take(before.plan(step));
        const auto end = batching.steps_until(3);
        for (auto step = done + 1; step <= end; ++step) take(batching.plan(step));
        if (before.after(done).samples > 3 * size) continue;
        CHECK(batching.after(end) == dhp::DataPosition{end, 3 * size});
        for (const int hit : hits) CHECK(hit == 1);
      }
}

TEST_CASE(
    "batching: a run that resumes within its last part of an epoch ends where it would have") {
  const dhp::Batching whole(47, 8, 2);  // six steps an epoch
  for (const auto& [epochs, more] : {std::pair{0, 5}, {1, 3}, {2, 0}, {2, 6}})
    for (std::int64_t done = 0; done <= 6 * epochs + more; ++done)
      for (const std::int64_t global : {8, 16}) {
        dhp::Batching batching(47, global, 2);
        batching.resume_at(whole.after(done));
        const auto end = batching.steps_until(epochs, (more * 8 + global - 1) / global);
        if (global == 8) CHECK(end == 6 * epochs + more);
        else
          CHECK(batching.after(end).samples >= std::min(47 * epochs + 8 * more, 47 * epochs + 47));
        CHECK(batching.steps_until(0, 0) == done);
      }
}

TEST_CASE("batching: refuses wrong sizes and numbers") {
  CHECK_THROWS_WITH_AS(dhp::Batching(0, 4, 2), Contains("dataset is empty"), dhp::Error);
  CHECK_THROWS_AS(dhp::Batching(10, 4, 0), dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::Batching(10, 4, 3), Contains("multiple of the micro-batch"),
                       dhp::Error);
  CHECK_THROWS_WITH_AS((void)dhp::Batching(10, 4, 2).plan(0),
                       doctest::Contains("steps count from 1, got 0"), dhp::Error);
  CHECK_THROWS_AS((void)dhp::Batching(10, 4, 2).plan(1).samples_of(2), dhp::Error);
  CHECK_THROWS_AS((void)dhp::Batching(10, 4, 2).plan(1).assigned_to(2, 2), dhp::Error);
}

TEST_CASE("batching: a number of steps that overflows is limited") {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(dhp::Batching(100, 10, 5).steps_until(most) == std::int64_t{1} << 62);
  CHECK(dhp::Batching(most, 1, 1).steps_until(2) == std::int64_t{1} << 62);
  CHECK(dhp::Batching(100, 10, 5).steps_until(most / 1000) == most / 1000 * 10);
}
