// Elastic jobs over fakes of NCCL and CUDA: each generation makes new communicators, and ranks commit a step only if
// all of them have its sums. A member is a thread with its own GPU and a connection to the store that can be cut.
#ifdef DHP_HAS_PROCESSES
#include <tests/cuda/fake_ranks.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/comm/elastic/run_elastic.hpp>
#include <dhp/comm/nccl/connect.hpp>
#include <tests/comm/process_ranks.hpp>

namespace {

using Rank = GenerationRank<Cuda>;

struct Killed {};

/// A member of the job. Its thread takes the place of a process.
struct Member {
  Member(std::shared_ptr<MemoryStore> job, MemberId number, int on)
      : me(number), gpu(on), store(std::make_shared<Connection>(std::move(job), "", me)) {}
  [[nodiscard]] std::atomic<bool>& killed() const {
    return fake::killed.at(static_cast<std::size_t>(gpu));
  }
  /// Ends the member like SIGKILL.
  void lose() {
    killed() = true;
    store->cut();
  }
  [[noreturn]] void die() {
    lose();
    throw Killed();
  }
  MemberId me;
  int gpu;
  std::shared_ptr<Connection> store;
  std::optional<Cuda> dev{};
  std::optional<Comm<Cuda>> kept{};  // destroyed in the next generation
  std::string seen{};                // list of its events
  template <class... Parts>
  void saw(const Parts&... parts) {
    dhp::detail::append_text(seen, concat(seen.empty() ? "" : " ", parts...));
  }
};

class Job {
 public:
  using Body = std::function<GenerationEnd(Member&, Rank&)>;
  /// Calls body(member, rank) in each generation, and on_connect(member, generation) before it connects.
  Job(int started, Body body) : started_(started), body_(std::move(body)) {
    dhp::detail::prepare_process_for_nccl();
  }
  std::function<void(Member&, const ProcessRank&)> on_connect = [](Member&, const ProcessRank&) {};
  ElasticOptions elastic{.timeout_s = 20};

  /// Starts a member on this GPU.
  Member& start(int gpu) {
    auto& member = *members_.emplace_back(std::make_unique<Member>(store_, ++last_, gpu));
    threads_.emplace_back([this, &member] { run(member); });
    return member;
  }
  void start_all() {
    for (int gpu = 0; gpu < started_; ++gpu) start(gpu);
  }
  /// Waits for all members. Returns the event lists of the members, separated by " | ".
  [[nodiscard]] std::string join() {
    for (auto& thread : threads_) thread.join();
    std::string seen;
    for (const auto& member : members_)
      dhp::detail::append_text(seen, concat(seen.empty() ? "" : " | ", member->seen));
    members_.clear();
    return seen;
  }
  [[nodiscard]] Member& member(std::size_t at) { return *members_.at(at); }

 private:
  void run(Member& member) {
    const ProcessRank me{
        .rank = static_cast<int>(member.me) - 1, .size = started_, .local_rank = member.gpu};
    member.dev.emplace(
        CudaOptions{.device = member.gpu, .pinned_bytes = 1 << 20, .workspace_bytes = 256});
    const auto connect = [&](const std::shared_ptr<ProcessWatchdog>& watchdog,
                             const ProcessRank& place, const ProcessOptions& options) {
      const auto left = fake::comms_on.at(static_cast<std::size_t>(member.gpu)).load();
      if (left != 0) member.saw(left, " communicators are left;");
      on_connect(member, place);
      return connect_nccl(watchdog, place, options);
    };
    const auto body = [&](Rank& rank) {
      member.kept.emplace(rank.world);
      const auto end = body_(member, rank);
      if (end != GenerationEnd::changed) member.kept.reset();
      return end;
    };
    try {
      run_elastic<Cuda>(member.store, me, member.me, connect, body, {.timeout_s = 60}, elastic);
    } catch (const Killed&) {
      member.saw("killed");
    } catch (int) {
      member.saw("threw");
      member.store->cut();  // its process ends
    } catch (const Error& error) {
      member.saw(error.sentence());
    }
    member.kept.reset();
    member.dev.reset();
    member.killed() = false;  // a new member may use its GPU
  }

  int started_;
  Body body_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  MemberId last_ = 0;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::thread> threads_;
};

/// Returns the sum of 1, 2, ... over the ranks, read by the host.
int sum_of_ranks(Cuda& dev, Comm<Cuda>& world) {
  auto x = tensor_of<std::int32_t>(dev, {world.rank() + 1});
  world.all_reduce(dev, x.mut()).wait(dev);
  world.synchronize(dev);
  return x.to_host<int>(dev).front();
}
void see_generation(Member& member, Rank& rank) {
  member.saw(rank.now.number, ": ", sum_of_ranks(*member.dev, rank.world), ";");
}
void check_nothing_left(int streams) {
  CHECK(fake::comms == 0);
  CHECK(fake::streams == streams);
}

}  // namespace

TEST_CASE("elastic fake: surviving ranks continue, and a newcomer joins") {
  const int streams = fake::streams;
  std::atomic<bool> second = false;
  Job job(3, [&](Member& member, Rank& rank) {
    see_generation(member, rank);
    if (rank.now.number == 3) return GenerationEnd::finished;
    if (rank.now.number == 2) second = true;
    if (rank.now.number == 1) rank.world.barrier();  // all have seen the sum
    if (rank.now.number == 1 && member.me == 3) {
      auto x = tensor_of<std::int32_t>(*member.dev, {1});
      const auto event = rank.world.all_reduce(*member.dev, x.mut());
      member.die();
    }
    for (;;) {  // all ranks learn of the newcomer in one step
      const double asks = rank.change_wanted() ? 1 : 0;
      for (const double asked : gather(*member.dev, rank.world, {asks}))
        if (asked > 0) return GenerationEnd::changed;
    }
  });
  job.start_all();
  while (!second) sleep_ms(1);
  job.start(3);
  CHECK(job.join() == "1: 6; 2: 3; 3: 6; | 1: 6; 2: 3; 3: 6; | 1: 6; killed | 3: 6;");
  check_nothing_left(streams);
}

TEST_CASE("elastic fake: a rank that is killed while it connects does not stop the others") {
  const int streams = fake::streams;
  for (const int who : {0, 2}) {  // rank 0 makes NCCL's id
    CAPTURE(who);
    Job job(4, [&](Member& member, Rank& rank) {
      see_generation(member, rank);
      if (rank.now.number == 3) return GenerationEnd::finished;
      rank.world.barrier();  // all have seen the sum
      if (member.me == 4) member.die();
      for (;;) (void)sum_of_ranks(*member.dev, rank.world);
    });
    job.on_connect = [&](Member& member, const ProcessRank& place) {
      if (place.size == 3 && place.rank == who) {
        sleep_ms(50);  // the others wait for it or its id
        member.die();
      }
    };
    job.start_all();
    const std::string lives = "1: 10; 3: 3;", dies = "1: 10; killed";
    CHECK(job.join() == concat(who == 0 ? dies : lives, " | ", lives, " | ",
                               who == 2 ? dies : lives, " | ", dies));
    check_nothing_left(streams);
  }
}

TEST_CASE("elastic fake: an error of NCCL about a lost process does not blame this rank") {
  std::atomic<int> seen = 0;
  Job job(2, [&](Member& member, Rank& rank) {
    see_generation(member, rank);
    if (rank.now.number == 2) return GenerationEnd::finished;
    ++seen;
    while (seen < 2) sleep_ms(1);
    auto& failing = fake::failing.at(static_cast<std::size_t>(member.gpu));
    if (member.me == 2) {
      sleep_ms(100);
      member.die();
    }
    failing = true;
    try {
      for (;;) (void)sum_of_ranks(*member.dev, rank.world);
    } catch (const Aborted&) {
      failing = false;
      throw;
    }
  });
  job.start_all();
  CHECK(job.join() == "1: 3; 2: 1; | 1: 3; killed");
}

TEST_CASE("elastic fake: a rank that throws a number tells the others") {
  Job job(2, [&](Member& member, Rank& rank) {
    if (rank.now.number == 2) {
      member.saw(rank.ended);
      return GenerationEnd::finished;
    }
    if (member.me == 2) throw 7;
    for (;;) (void)sum_of_ranks(*member.dev, rank.world);
  });
  job.start_all();
  CHECK(job.join() == "rank 1: an exception of unknown type | threw");
}

// --- A step like Trainer's: sums, commit, update.
namespace {

struct Steps {
  Tensor<Cuda> sums{}, weights{};
  int updates = 0;  // issued by the host
  bool ready = false;
  std::atomic<int>* all_ready = nullptr;  // number of ready ranks of the job
};

enum class At { sums, synchronize, barrier, update };
/// Called before each of these points.
using On = std::function<void(Member&, Rank&, Steps&, At)>;

/// Runs a step of generation 1 over `parts` groups, which the loss of a member interrupts. Returns for each survivor
/// how many updates it has issued, whether it was ready for one, and its weights.
std::string interrupted_step(int ranks, int parts, const On& on) {
  std::vector<Steps> all(4);
  std::atomic<int> all_ready = 0;
  Job job(ranks, [&](Member& member, Rank& rank) {
    auto& dev = *member.dev;
    auto& world = rank.world;
    auto& mine = all.at(member.me - 1);
    const auto update = [&] {
      dev.copy(mine.weights.mut().bytes(), mine.sums.view().bytes(), mine.sums.size_bytes());
      ++mine.updates;
    };
    if (rank.now.number == 1) {
      mine.weights = tensor_of<std::int32_t>(dev, {0});
      mine.sums = tensor_of<std::int32_t>(dev, {world.rank() + 1});
      mine.all_ready = &all_ready;
      rank.report.steps = 0;
      auto part = world.split(world.rank() % parts, world.rank());
      try {
        on(member, rank, mine, At::sums);
        part.all_reduce(dev, mine.sums.mut()).wait(dev);
        on(member, rank, mine, At::synchronize);
        world.synchronize(dev);
        mine.ready = true;
        ++all_ready;
        on(member, rank, mine, At::barrier);
        world.barrier();
        update();
        rank.report.steps = 1;
        on(member, rank, mine, At::update);
        for (;;) world.barrier();
      } catch (const Aborted&) {
        if (member.killed()) throw Killed();
        member.saw(mine.updates, mine.ready ? " ready;" : ";");
        throw;
      }
    }
    if (rank.now.steps == 1 && mine.updates == 0) {
      check(mine.ready, "it is not ready");
      update();
    }
    member.saw("weights ", mine.weights.to_host<int>(dev).front(), ";");
    return GenerationEnd::finished;
  });
  job.start_all();
  return job.join();
}

}  // namespace

TEST_CASE("elastic fake: no rank commits a step before its device has the sums") {
  fake::Gate gate;
  const auto ends = interrupted_step(3, 1, [&](Member& member, Rank&, Steps&, At at) {
    if (member.me != 3) return;
    if (at == At::sums) gate.hold(member.dev->stream());
    if (at == At::synchronize)
      std::thread([&] {
        sleep_ms(200);
        member.lose();
        sleep_ms(2500);  // by then the others know of it
        gate.open();
      }).detach();
  });
  CHECK(ends == "0; weights 0; | 0; weights 0; | killed");
}

TEST_CASE("elastic fake: a slow rank does not take an aborted sum for a valid one") {
  const auto ends = interrupted_step(3, 1, [&](Member& member, Rank&, Steps&, At at) {
    if (member.me == 3 && at == At::sums) {
      sleep_ms(100);
      member.die();
    }
    if (member.me == 2 && at == At::synchronize)  // until the abort ends its stream
      while (!dhp::detail::CudaEvent::recorded(member.dev->stream()).passed()) sleep_ms(1);
  });
  CHECK(ends == "0; weights 0; | 0; weights 0; | killed");
}

TEST_CASE("elastic fake: no rank updates its weights before all have their sums") {
  const auto ends = interrupted_step(3, 1, [&](Member& member, Rank&, Steps& mine, At at) {
    if (member.me == 3 && at == At::barrier) {
      while (*mine.all_ready < 3) sleep_ms(1);
      member.die();
    }
  });
  CHECK(ends == "0 ready; weights 0; | 0 ready; weights 0; | killed");
}

TEST_CASE("elastic fake: if one rank has done the update, all others do it") {
  const auto ends = interrupted_step(3, 1, [&](Member& member, Rank&, Steps&, At at) {
    if (member.me == 3 && at == At::update) member.die();
  });
  CHECK(has(ends, " ready; weights 6; | "));
  CHECK(has(ends, " ready; weights 6; | killed"));
}

TEST_CASE("elastic fake: an aborted sum of one rank does not let another one commit") {
  // Ranks 0 and 2 have their sums and wait in the barrier for rank 1; rank 1 waits for rank 3. Rank 0 learns it first.
  const auto ends = interrupted_step(4, 2, [&](Member& member, Rank&, Steps& mine, At at) {
    if (member.me == 4 && at == At::sums) {
      while (*mine.all_ready < 2) sleep_ms(1);
      member.die();
    }
  });
  CHECK(ends == "0 ready; weights 0; | 0; weights 0; | 0 ready; weights 0; | killed");
}
#endif
