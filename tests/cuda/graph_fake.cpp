// Recorded steps of several ranks over fakes of CUDA and NCCL. The fake refuses during a capture all calls that CUDA
// refuses, so a step that records and runs here has no call that a graph cannot contain.
#include <tests/cuda/fake_ranks.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/comm/mesh.hpp>

namespace {

/// The communication of a training step, without kernels. It turns x into the values that `expected` checks.
class Step {
 public:
  explicit Step(Comm<Cuda>& world)
      : world_(world), half_(world_.split(world.rank() % 2, 0)), buckets_(world_) {}

  void operator()(Cuda& dev, Tensor<Cuda>& x) {
    const int n = world_.size(), me = world_.rank();
    // Sends more messages around the ring than fit before the device waits.
    for (int k = 0; k < 2 * dhp::detail::message_capacity; ++k) {
      Tensor<Cuda> got(dev, x.dtype(), x.shape());
      if (me % 2 == 0) {
        world_.send(dev, clone(dev, x), (me + 1) % n);
        world_.recv(dev, got.mut(), (me + n - 1) % n);
      } else {
        world_.recv(dev, got.mut(), (me + n - 1) % n);
        world_.send(dev, clone(dev, x), (me + 1) % n);
      }
      x = std::move(got);
    }
    auto y = clone(dev, x);
    const auto first = buckets_.start(dev, Collective<Cuda>::all_reduce(x.mut()));  // overlaps
    half_.all_reduce(dev, y.mut(), Reduce::max).wait(dev);
    auto all = Tensor<Cuda>(dev, x.dtype(), {n * x.count()});
    { const auto dropped = world_.all_gather(dev, y.view(), all.mut()); }
    first.wait(dev);
    world_.all_reduce(dev, x.mut(), Reduce::max).wait(dev);
  }
  static Tensor<Cuda> clone(Cuda& dev, const Tensor<Cuda>& from) {
    Tensor<Cuda> made(dev, from.dtype(), from.shape());
    dev.copy(made.mut().bytes(), from.view().bytes(), from.size_bytes());
    return made;
  }

 private:
  Comm<Cuda> world_, half_;
  Progress<Cuda> buckets_;
};

Values first_values(int rank, int step) { return {rank + step, 10 * rank, -step}; }
void put(Cuda& dev, Tensor<Cuda>& x, const Values& values) {
  std::vector<float> floats(values.begin(), values.end());
  dev.copy_from_host(x.mut().bytes(), reinterpret_cast<const std::byte*>(floats.data()),
                     x.size_bytes());
}

TEST_CASE("graph fake: a recorded step of several ranks has the same results") {
  for (const int n : {2, 4}) {
    CAPTURE(n);
    const auto sums = [n](int step) {
      Values values(3, 0);
      for (int rank = 0; rank < n; ++rank)
        for (std::size_t at = 0; at < 3; ++at) values[at] += first_values(rank, step)[at];
      return values;
    };
    const auto wrong = on_gpus(n, [&](Comm<Cuda>& world, Cuda& dev) {
      std::string text;
      Step step(world);
      auto slot = tensor_of<float>(dev, {0, 0, 0});
      Tensor<Cuda> result;
      const auto work = [&] {
        auto x = Step::clone(dev, slot);
        step(dev, x);
        result = std::move(x);
      };
      const auto expect = [&](const char* how, int number) {
        if (!holds(dev, result, sums(number)))
          dhp::detail::append_text(text, concat(how, " ", number, "; "));
      };
      put(dev, slot, first_values(world.rank(), 0));
      work();
      expect("unrecorded", 0);
      const auto graph = dev.record(work);
      const auto recorded = result.share();
      for (int number = 1; number < 6; ++number) {
        put(dev, slot, first_values(world.rank(), number));
        if (number == 3) {  // an evaluation or a short step
          work();
        } else {
          dev.run(graph);
          result = recorded.share();
        }
        expect(number == 3 ? "unrecorded again" : "recorded", number);
      }
      world.barrier();
      return text;
    });
    for (const auto& text : wrong) CHECK(text == "");
  }
  CHECK(fake::comms == 0);
}

TEST_CASE("graph fake: a recorded step that waits for another rank is reported with its place") {
  constexpr int line = __LINE__ + 4;
  const auto message = end_of(2, 1, [&](Comm<Cuda>& world, Cuda& dev) {
    auto x = tensor_of<float>(dev, {1, 2, 3}), y = tensor_of<float>(dev, {1});
    const auto work = [&] {
      world.all_reduce(dev, x.mut()).wait(dev);
      world.all_reduce(dev, y.mut()).wait(dev);
      world.all_reduce(dev, y.mut()).wait(dev);
    };
    work();
    const auto graph = dev.record(work);
    dev.run(graph);
    dev.synchronize();
    if (world.rank() == 1) return sleep_ms(5000);
    dev.run(graph);
    dev.synchronize();
    world.barrier();
  });
  CHECK(has(message, concat("rank 0 waits in all_reduce of 3 f32 (sum) and 2 more of a "
                            "recorded step at graph_fake.cpp:",
                            line, " for rank 1, which is alive and in no call")));
}

TEST_CASE("graph fake: a recorded step does not run after the end of the world") {
  const auto message = end_of(2, 60, [&](Comm<Cuda>& world, Cuda& dev) {
    auto x = tensor_of<float>(dev, {1});
    const auto work = [&] { world.all_reduce(dev, x.mut()).wait(dev); };
    work();
    const auto graph = dev.record(work);
    dev.run(graph);
    dev.synchronize();
    if (world.rank() == 1) fail("no more paper");
    for (;;) {
      dev.run(graph);
      dev.synchronize();
    }
  });
  CHECK(message == "rank 1: no more paper");
}

TEST_CASE("graph fake: a recorded step keeps the communicators that it works with") {
  const auto wrong = on_gpus(2, [](Comm<Cuda>& world, Cuda& dev) {
    auto x = tensor_of<float>(dev, {1});
    std::optional<Comm<Cuda>> part = world.split(0, -world.rank());
    const auto work = [&] { part->all_reduce(dev, x.mut()).wait(dev); };
    work();
    const auto graph = dev.record(work);
    part.reset();
    dev.run(graph);
    return holds(dev, x, {4}) ? "" : "another sum";
  });
  for (const auto& text : wrong) CHECK(text == "");
  CHECK(fake::comms == 0);
}

TEST_CASE(
    "graph fake: another device and another graph may record work of the same communicators") {
  const auto wrong = on_gpus(2, [](Comm<Cuda>& world, Cuda& dev) {
    const auto work_on = [&](Cuda& on, Tensor<Cuda>& x, Comm<Cuda>& comm) {
      return [&] { comm.all_reduce(on, x.mut()).wait(on); };
    };
    {
      Cuda first({.device = world.rank(), .pinned_bytes = 1 << 12, .workspace_bytes = 256});
      auto x = tensor_of<float>(first, {1});
      const auto work = work_on(first, x, world);
      work();
      first.run(first.record(work));
      if (!holds(first, x, {4})) return "another sum on the first device";
    }
    auto x = tensor_of<float>(dev, {1});
    std::optional<Comm<Cuda>> part = world.split(0, world.rank());
    const auto old_work = work_on(dev, x, *part), work = work_on(dev, x, world);
    old_work();
    auto graph = dev.record(old_work);
    dev.run(graph);
    part.reset();
    work();
    graph = dev.record(work);
    dev.run(graph);
    return holds(dev, x, {16}) ? "" : "another sum";
  });
  for (const auto& text : wrong) CHECK(text == std::string());
  CHECK(fake::comms == 0);
}

TEST_CASE("graph fake: the memory of a graph, and of a failed recording, ends with it") {
  Cuda dev({.pinned_bytes = 1 << 12, .workspace_bytes = 256});
  const auto held = dev.memory().held_bytes();
  for (const bool fails : {false, true}) {
    const auto record = [&] {
      return dev.record([&] {
        Tensor<Cuda> x(dev, DType::f32, {1 << 20});
        dev.fill_zero(x.mut().bytes(), x.size_bytes());
        dhp::check(!fails, "no more paper");
      });
    };
    if (fails) CHECK(message_of([&] { (void)record(); }) == "no more paper");
    else CHECK(record());
    CHECK(dev.memory().held_bytes() == held);
  }
}

TEST_CASE("graph fake: work that cannot be recorded is refused, and still runs unrecorded") {
  const auto wrong = on_gpus(2, [](Comm<Cuda>& world, Cuda& dev) {
    auto x = tensor_of<float>(dev, {1});
    const auto work = [&] {
      world.all_reduce(dev, x.mut()).wait(dev);
      (void)x.to_host<float>(dev);
    };
    work();
    const auto error = message_of([&] { (void)dev.record(work); });
    work();
    return has(error, "a recorded step cannot contain a copy to the host") ? std::string() : error;
  });
  for (const auto& text : wrong) CHECK(text == "");
}

}  // namespace
