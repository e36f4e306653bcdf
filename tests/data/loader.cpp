// The loader: the same bytes for any number of threads, replicas that cover the step, a start at any step, errors that
// name the sample, and a clean end at any time.
#include <dhp/data/loader.hpp>
#include <dhp/device/cpu.hpp>
#include <tests/support/test.hpp>

namespace {

// Side input "ids" [N] i64, and one random number per sample and epoch as the input [N, 1].
struct Numbers {
  std::int64_t count = 0;
  std::int64_t bad = -1;
  std::int64_t delay_us = 0;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices,
                                       std::int64_t epoch) const {
    const auto n = static_cast<std::int64_t>(indices.size());
    dhp::HostBatch batch;
    batch.input = dhp::HostArray(dhp::DType::f64, {n, 1});
    dhp::HostArray ids(dhp::DType::i64, {n});
    for (std::size_t at = 0; at < indices.size(); ++at) {
      if (indices[at] == bad) throw std::runtime_error("sample 6: damaged on purpose");
      dhp::naming_sample(indices[at], [&] {
        if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        dhp::SampleRandom random(7, epoch, indices[at], dhp::DataUse::augment);
        batch.input.values<double>()[at] = random.uniform();
        ids.values<std::int64_t>()[at] = indices[at];
      });
    }
    batch.side.emplace_back("ids", std::move(ids));
    batch.counts.emplace_back("samples", n);
    return batch;
  }
};
static_assert(dhp::Batcher<Numbers>);
static_assert(!dhp::Batcher<int>);

struct Seen {
  std::int64_t step, index, first, samples;
  std::vector<std::int64_t> ids;
  std::vector<double> values;
  friend bool operator==(const Seen&, const Seen&) = default;
};

template <class L>
std::vector<Seen> drain(Cpu& cpu, L& loader, int steps) {
  std::vector<Seen> seen;
  for (int step = 0; step < steps && !loader.finished(); ++step) {
    const auto at = loader.steps_done();
    for (const auto& batch : loader.next().batches) {
      CHECK(batch.count_of("samples") == batch.samples);
      CHECK(batch.input.shape()[0] == batch.samples);
      seen.push_back({at, batch.index, batch.first_sample, batch.samples,
                      batch.at("ids").template to_host<std::int64_t>(cpu),
                      batch.input.template to_host<double>(cpu)});
    }
  }
  return seen;
}

TEST_CASE("loader: any number of threads and steps ahead gives the same bytes") {
  Cpu cpu;
  std::vector<Seen> first;
  for (const int threads : {0, 1, 4}) {
    for (const int ahead : {1, 3}) {
      dhp::Loader loader(cpu, Numbers{.count = 53},
                         {.global_batch = 12,
                          .micro_batch = 4,
                          .reader = {.seed = 5},
                          .threads = threads,
                          .steps_ahead = ahead});
      const auto seen = drain(cpu, loader, 13);
      if (first.empty()) first = seen;
      CHECK(seen == first);
    }
  }
  CHECK(first.size() == 3 * 13 - 2);  // two short steps of 53 - 48 = 5 samples: two micro-batches
}

TEST_CASE("loader: replicas together see the samples of one replica") {
  Cpu cpu;
  const Numbers numbers{.count = 27};  // 7 micro-batches of 4, the last one of 3
  dhp::Loader whole(cpu, numbers, {.global_batch = 28, .micro_batch = 4, .epochs = 2});
  const auto serial = drain(cpu, whole, 99);
  std::vector<Seen> joined;
  for (int replica = 0; replica < 3; ++replica) {
    dhp::Loader part(cpu, numbers,
                     {.global_batch = 28,
                      .micro_batch = 4,
                      .reader = {.replica = replica, .replicas = 3},
                      .epochs = 2});
    const auto seen = drain(cpu, part, 99);
    joined.insert(joined.end(), seen.begin(), seen.end());
  }
  std::sort(joined.begin(), joined.end(), [](const Seen& a, const Seen& b) {
    return std::pair(a.step, a.index) < std::pair(b.step, b.index);
  });
  CHECK(joined == serial);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<std::int64_t> ids;
    for (const auto& batch : joined)
      if (batch.step == epoch) ids.insert(batch.ids.begin(), batch.ids.end());
    CHECK(ids.size() == 27);
    CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == 27);
  }
  CHECK(joined.front().ids != joined[7].ids);  // the next epoch has another order
  CHECK(joined.back().samples == 3);
}

TEST_CASE("loader: a step has the counts of all replicas, and promises shapes for full steps") {
  Cpu cpu;
  for (const bool promised : {false, true}) {
    dhp::Loader loader(
        cpu, Numbers{.count = 13},
        {.global_batch = 8, .micro_batch = 4, .reader = {.replicas = 2}, .same_shapes = promised});
    const auto full = loader.next();
    CHECK(full.batches.size() == 1);
    CHECK(full.micro_batches == 2);
    CHECK(full.samples == 8);
    CHECK(full.same_shapes == promised);
    const auto last = loader.next();
    CHECK(last.micro_batches == 2);
    CHECK(last.samples == 5);
    CHECK(!last.same_shapes);
  }
  const auto example = dhp::example_batch(cpu, Numbers{.count = 3}, 4);
  CHECK(example.at("ids").to_host<std::int64_t>(cpu) == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("loader: starting at any step gives the same batches as running through") {
  Cpu cpu;
  const Numbers numbers{.count = 21};
  const LoaderOptions options{.global_batch = 6, .micro_batch = 2, .threads = 2};
  dhp::Loader through(cpu, numbers, options);
  const auto all = drain(cpu, through, 12);
  const dhp::Batching plain(21, 6, 2);
  for (const std::int64_t start : {0, 1, 3, 4, 9}) {
    auto resumed_options = options;
    resumed_options.from = plain.after(start);
    dhp::Loader resumed(cpu, numbers, resumed_options);
    through.start_at(plain.after(start));
    const auto a = drain(cpu, resumed, static_cast<int>(12 - start));
    const auto b = drain(cpu, through, static_cast<int>(12 - start));
    std::vector<Seen> expected;
    for (const auto& batch : all)
      if (batch.step >= start) expected.push_back(batch);
    CHECK(a == expected);
    CHECK(b == expected);
  }
}

TEST_CASE("loader: an evaluation goes over the set once, in order, at any number of replicas") {
  Cpu cpu;
  for (const int replicas : {1, 2, 3, 5}) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> batches;
    for (int replica = 0; replica < replicas; ++replica) {
      dhp::Loader loader(cpu, Numbers{.count = 23},
                         dhp::evaluation_pass({.global_batch = 10,
                                               .micro_batch = 5,
                                               .reader = {.replica = replica, .replicas = replicas},
                                               .from = {3, 30}}));
      CHECK(loader.steps() == 3);
      for (auto& seen : drain(cpu, loader, 99)) batches[{seen.step, seen.index}] = seen.ids;
      CHECK_THROWS_WITH_AS(loader.next(), Contains("the last of 3 steps was taken"), dhp::Error);
    }
    std::vector<std::int64_t> ids;
    for (const auto& [place, part] : batches) ids.insert(ids.end(), part.begin(), part.end());
    REQUIRE(ids.size() == 23);
    for (std::size_t at = 0; at < ids.size(); ++at) CHECK(ids[at] == static_cast<std::int64_t>(at));
  }
}

TEST_CASE("loader: an error names its sample, and the loader can continue") {
  Cpu cpu;
  for (const int threads : {0, 1, 3}) {
    LoaderOptions options{
        .global_batch = 4, .micro_batch = 2, .shuffle = false, .threads = threads};
    dhp::Loader loader(cpu, Numbers{.count = 16, .bad = 6}, options);
    CHECK(loader.next().batches.size() == 2);
    for (int again = 0; again < 2; ++again)
      CHECK_THROWS_WITH_AS((void)loader.next(),
                           Contains("step 2, micro-batch 1, sample 6: damaged on purpose"),
                           dhp::Error);
    CHECK(loader.steps_done() == 1);
    loader.start_at(loader.batching().after(2));
    CHECK(loader.next().batches.front().at("ids").to_host<std::int64_t>(cpu).front() == 8);
  }
}

TEST_CASE("loader: ends cleanly at any time") {
  Cpu cpu;
  for (int taken = 0; taken < 6; ++taken) {
    dhp::Loader loader(cpu, Numbers{.count = 100, .delay_us = 50},
                       {.global_batch = 8, .micro_batch = 2, .threads = 3, .steps_ahead = 3});
    for (int step = 0; step < taken; ++step) CHECK(loader.next().batches.size() == 4);
    if (taken == 4) loader.start_at({1, 8});
  }
}

TEST_CASE("loader: reads no more steps ahead than steps_ahead") {
  struct Counting {
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
    [[nodiscard]] std::int64_t size() const { return 1000; }
    [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t>, std::int64_t) const {
      calls->fetch_add(1);
      return {};
    }
  };
  Cpu cpu;
  const Counting counting;
  dhp::Loader loader(cpu, counting,
                     {.global_batch = 4, .micro_batch = 2, .threads = 2, .steps_ahead = 3});
  (void)loader.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(counting.calls->load() <= 2 * (1 + 3));
}

TEST_CASE("loader: refuses wrong options") {
  Cpu cpu;
  const Numbers numbers{.count = 4};
  const auto make = [&](const LoaderOptions& options) {
    dhp::Loader loader(cpu, numbers, options);
  };
  CHECK_THROWS_WITH_AS(make({.global_batch = 6, .micro_batch = 4}),
                       Contains("not a positive multiple"), dhp::Error);
  CHECK_THROWS_WITH_AS(make({.reader = {.replica = 2, .replicas = 2}}),
                       Contains("no replica 2 of 2"), dhp::Error);
  CHECK_THROWS_AS(make({.threads = -1}), dhp::Error);
  CHECK_THROWS_AS(make({.steps_ahead = 0}), dhp::Error);
  CHECK_THROWS_AS(make({.from = {-1, 0}}), dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::Loader(cpu, Numbers{}, LoaderOptions{}), Contains("empty"), dhp::Error);
}

TEST_CASE("loader: with a shuffle window each sample comes once in an epoch, from any step on") {
  Cpu cpu;
  const LoaderOptions options{.global_batch = 12,
                              .micro_batch = 4,
                              .reader = {.seed = 5},
                              .shuffle_window = 20,
                              .epochs = 1};
  dhp::Loader loader(cpu, Numbers{.count = 103}, options);
  const auto all = drain(cpu, loader, 100);
  std::set<std::int64_t> ids;
  std::set<std::int64_t> in_first_window;
  std::int64_t place = 0;
  for (const auto& batch : all)
    for (const auto id : batch.ids) {
      ids.insert(id);
      if (place++ < 20) in_first_window.insert(id / 4);
    }
  CHECK(ids.size() == 103);
  CHECK(in_first_window.size() <= 7);  // blocks of 4: 5 of them, and 2 at the edges
  auto later = options;
  later.from = {.steps_done = 4, .samples = 48};
  dhp::Loader resumed(cpu, Numbers{.count = 103}, later);
  CHECK(drain(cpu, resumed, 1)[0].ids == all[12].ids);
}

}  // namespace
