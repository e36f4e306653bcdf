// NcclComm over fakes of CUDA and NCCL: no rank deadlocks with itself, and an error names a missing rank. A program of
// its own, because it replaces cudaMalloc and similar functions.
#include <tests/cuda/fake_ranks.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/comm/mesh.hpp>
#include <dhp/comm/observe/trace.hpp>
#include <dhp/comm/progress.hpp>
#ifdef DHP_HAS_PROCESSES
#include <dhp/comm/nccl/connect.hpp>
#include <tests/comm/process_ranks.hpp>
#endif

TEST_CASE("nccl fake: collectives, groups, messages and concurrent communicators work") {
  for (const int n : {1, 2, 3, 4}) {
    CAPTURE(n);
    const auto wrong = on_gpus(n, [](Comm<Cuda>& world, Cuda& dev) {
      auto text = wrong_collectives(world, dev, {1, 1000},
                                    {DType::f64, DType::f32, DType::i64, DType::i32, DType::u8});
      world.barrier();
      if (world.size() == 1) return text;
      text += wrong_parts(world, dev);
      dhp::detail::append_text(text, concat(wrong_ring(world, dev), " messages"));
      dhp::detail::append_text(text,
                               concat(", ", wrong_beside_others(world, dev), " beside others"));
      return text;
    });
    for (const auto& text : wrong) CHECK(text == (n == 1 ? "" : "0 messages, 0 beside others"));
  }
}

TEST_CASE("nccl fake: a send beyond the capacity waits on the device, not on the host") {
  std::atomic<bool> sent = false;
  std::atomic<int> wrong = 0;
  CHECK(end_of(2, 60, [&](Comm<Cuda>& world, Cuda& dev) {
          constexpr int messages = 3 * dhp::detail::message_capacity;
          if (world.rank() == 0) {
            for (int k = 0; k < messages; ++k) {
              auto x = tensor_of<std::int32_t>(dev, {k});
              world.send(dev, x.share(), 1);
            }
            sent = true;
            return;
          }
          auto first = tensor_of<std::int32_t>(dev, {-1});
          world.recv(dev, first.mut(), 0);  // meets the first send
          while (!sent) sleep_ms(1);
          for (int k = 1; k < messages; ++k) {
            auto x = tensor_of<std::int32_t>(dev, {-1});
            world.recv(dev, x.mut(), 0);
            wrong += !holds(dev, x, {k});
          }
        }) == "no error");
  CHECK(wrong == 0);
}

// Makes the communicators of a training run, as in docs/gpu.md: mesh, gradient sums, weights tied over the first and
// the last stage, messages in both directions.
TEST_CASE("nccl fake: an axis of one rank has no communicator") {
  const auto communicators = [](MeshShape shape) {
    const auto result = [](Cuda& dev) {
      return fake::made_on.at(static_cast<std::size_t>(dev.number())).load();
    };
    const auto counted = on_gpus(shape.size(), [&](Comm<Cuda>& world, Cuda& dev) {
      const int others = result(dev) - 1;  // the world's own is not counted
      Mesh<Cuda> mesh(world, shape);
      CHECK(mesh.tensor().size() == shape.tensor);
      mesh.tensor().barrier();
      const Progress<Cuda> sums(mesh.data());
      const int stage = mesh.pipeline_index(), last = shape.pipeline - 1;
      const auto tied =
          last > 0 ? mesh.pipeline().split(stage % last == 0 ? 0 : -1, stage) : Comm<Cuda>();
      for (auto* const way : {&mesh.pipeline(), &mesh.pipeline_backward()}) {
        if (last == 0) continue;
        auto sent = tensor_of<std::int32_t>(dev, {stage}),
             received = tensor_of<std::int32_t>(dev, {-1});
        if (stage > 0) way->recv(dev, received.mut(), stage - 1);
        if (stage < last) way->send(dev, sent.share(), stage + 1);
      }
      return concat(result(dev) - others);
    });
    return *std::max_element(counted.begin(), counted.end());
  };
  CHECK(communicators({.data = 4}) == "3");  // world, axis, gradient sums
  CHECK(communicators({.tensor = 4}) == "2");
  CHECK(communicators({.data = 2, .tensor = 2}) == "4");
  CHECK(communicators({.pipeline = 4}) == "8");
  CHECK(communicators({.data = 2, .tensor = 1, .pipeline = 2}) == "10");
}

TEST_CASE("nccl fake: a split waits until the group's collectives are done") {
  CHECK(end_of(2, 60, [&](Comm<Cuda>& world, Cuda& dev) {
          auto x = tensor_of<float>(dev, {1});
          fake::of(dev.stream()).put([] { sleep_ms(50); });  // earlier work of the GPU
          const auto event = world.all_reduce(dev, x.mut());
          auto part =
              world.split(0, world.rank());  // the fake refuses a split while work is pending
          event.wait();
          part.barrier();
        }) == "no error");
}

TEST_CASE("nccl fake: a rank that throws ends the others, and is named") {
  std::atomic<int> heard = 0;
  const auto start = std::chrono::steady_clock::now();
  CHECK(end_of(3, 2 * hang_s, [&](Comm<Cuda>& world, Cuda& dev) {
          auto x = tensor_of<float>(dev, {1});
          try {
            world.barrier();  // all ranks are in the block
            world.all_reduce(dev, x.mut()).wait();
            if (world.rank() == 2) fail("the disk is full");
            world.all_reduce(dev, x.mut()).wait();
            dev.synchronize();
            for (;;) world.barrier();
          } catch (const Aborted& error) {
            heard += error.sentence() == "rank 2: the disk is full";
            throw;
          }
        }) == "rank 2: the disk is full");
  CHECK(heard == 2);
  CHECK(seconds_since(start) < hang_s);
}

TEST_CASE("nccl fake: a rank that throws does not wait for its pending collectives") {
  const auto start = std::chrono::steady_clock::now();
  const auto message = end_of(2, 2 * hang_s, [&](Comm<Cuda>& world, Cuda& dev) {
    Progress<Cuda> progress(world);
    auto x = tensor_of<float>(dev, {1}), y = tensor_of<float>(dev, {1});
    if (world.rank() == 0) {
      const auto event = progress.start(dev, Collective<Cuda>::all_reduce(x.mut()));
      sleep_ms(20);
      fail("out of paper");
    }
    world.all_reduce(dev, y.mut()).wait();
    dev.synchronize();
    world.barrier();
  });
  CHECK(has(message, "rank 0"));
  CHECK(seconds_since(start) < hang_s);
}

TEST_CASE("nccl fake: a wait for a missing rank is reported with its place at the time limit") {
  int line = 0;
  const auto missing = end_of(2, 1, [&](Comm<Cuda>& world, Cuda& dev) {
    auto x = tensor_of<float>(dev, {1, 2, 3});
    world.barrier();
    if (world.rank() == 1) return sleep_ms(5000);
    line = __LINE__, world.all_reduce(dev, x.mut()).wait();
    dev.synchronize();
    world.barrier();
  });
  CHECK(has(missing, concat("rank 0 waits in all_reduce of 3 f32 (sum) at nccl_fake.cpp:", line,
                            " for rank 1, which is alive and in no call; its last one, barrier")));
  CHECK(has(missing, "beyond the time limit of 1 s"));

  const auto crossed = end_of(2, 1, [](Comm<Cuda>& world, Cuda& dev) {
    auto a = world.split(0, world.rank()), b = world.split(0, world.rank());
    auto x = tensor_of<float>(dev, {1});
    if (world.rank() == 1) std::swap(a, b);
    a.all_reduce(dev, x.mut()).wait();
    b.all_reduce(dev, x.mut()).wait();
    dev.synchronize();
    world.barrier();
  });
  CHECK(has(crossed, "waits in all_reduce of 1 f32 (sum) at nccl_fake.cpp:"));

  for (const bool sends : {false, true}) {  // a first message also splits the group
    const auto alone = end_of(2, 1, [&](Comm<Cuda>& world, Cuda& dev) {
      if (world.rank() == 1) return sleep_ms(5000);
      if (sends) world.send(dev, tensor_of<float>(dev, {1}), 1);
      else (void)world.split(0, 0);
    });
    CHECK(has(alone, "rank 0 waits in split at nccl_fake.cpp:"));
  }
}

TEST_CASE("nccl fake: kernels are loaded eagerly only if ranks wait for each other") {
  const auto loading = [] {
    const char* const value = std::getenv("CUDA_MODULE_LOADING");
    return std::string(value == nullptr ? "" : value);
  };
  ::unsetenv("CUDA_MODULE_LOADING");
  CHECK(end_of(1, 60, [](Comm<Cuda>&, Cuda&) {}) == "no error");
#ifdef DHP_HAS_PROCESSES
  {
    const auto process = world_of(std::make_shared<MemoryStore>(), 0, 1);
    connect_nccl(process, ProcessRank{}, {}).barrier();
    process->finish(0);
  }
#endif
  CHECK(loading() == "");
  CHECK(end_of(2, 60, [](Comm<Cuda>&, Cuda&) {}) == "no error");
  CHECK(loading() == "EAGER");
}

TEST_CASE("nccl fake: a rank that waits in a split holds no lock of the driver") {
  std::atomic<bool> begun = false;
  CHECK(end_of(2, 60, [&](Comm<Cuda>& world, Cuda& dev) {
          if (world.rank() == 0) begun = true;
          while (!begun) sleep_ms(1);
          if (world.rank() == 1) {
            sleep_ms(50);
            (void)dev.allocate(std::size_t{3} << 20);
          }
          (void)world.split(0, world.rank());
        }) == "no error");
}

TEST_CASE("nccl fake: concurrent communication kernels fit into the GPU together, or are refused") {
  struct Gpu {
    int multiprocessors, collective, message;
  };
  // H200 and H100, B200, A100, A10, L4, A30; MIG slices of an H100 and an A100
  for (const auto& gpu : {Gpu{132, 24, 4}, Gpu{148, 24, 4}, Gpu{108, 24, 4}, Gpu{72, 16, 3},
                          Gpu{58, 14, 2}, Gpu{56, 13, 2}, Gpu{16, 2, 1}, Gpu{14, 2, 1}}) {
    CAPTURE(gpu.multiprocessors);
    fake::multiprocessors = gpu.multiprocessors;
    CHECK(3 * gpu.collective + 8 * gpu.message <= gpu.multiprocessors);
    CHECK(end_of(2, 60, [](Comm<Cuda>& world, Cuda& dev) {
            auto x = tensor_of<float>(dev, {1});
            if (world.rank() == 0) world.send(dev, x.share(), 1);
            else world.recv(dev, x.mut(), 0);
          }) == "no error");
    CHECK(fake::ctas_of_world == gpu.collective);
    CHECK(fake::ctas_of_split == gpu.message);
    const auto error =
        message_of([] { (void)NcclOptions{.collective_ctas = 24, .message_ctas = 4}.fitted(0); });
    CHECK((error == "no error") == (gpu.multiprocessors >= 104));
    if (gpu.multiprocessors == 56)
      CHECK(
          error ==
          "NCCL: 3 collectives of 24 multiprocessors and 8 messages of 4 do not fit into "
          "the 56 of GPU 0 (Fake) together, and could wait for each other forever; leave "
          "NcclOptions' collective_ctas and message_ctas at 0, or take a larger GPU or MIG slice");
  }
  fake::multiprocessors = 8;
  CHECK(has(end_of(2, 60, [](Comm<Cuda>&, Cuda&) {}), "do not fit into the 8 of GPU"));
  fake::multiprocessors = 132;
}

TEST_CASE("nccl fake: an older or incompatible NCCL is refused with a sentence") {
  const auto says = [](int version) {
    fake::nccl_version = version;
    const auto error = end_of(2, 60, [](Comm<Cuda>&, Cuda&) {});
    fake::nccl_version = NCCL_VERSION_CODE;
    return error;
  };
  CHECK(says(NCCL_VERSION_CODE + 100) == "no error");
  constexpr int major = NCCL_MAJOR * 10000;
  for (const int version : {NCCL_VERSION_CODE - 1, major + 10000, major + 1000}) {
    const auto error = says(version);
    CAPTURE(error);
    CHECK(has(error, concat("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100,
                            " was loaded, but this program was compiled for ", NCCL_MAJOR, ".",
                            NCCL_MINOR, ".", NCCL_PATCH)));
    CHECK(has(error, "put the folder of the right libnccl into LD_LIBRARY_PATH"));
  }
}

TEST_CASE("nccl fake: the time limit counts from the start on the device") {
  CHECK(end_of(2, 3, [&](Comm<Cuda>& world, Cuda& dev) {
          auto x = tensor_of<float>(dev, {1});
          world.all_reduce(dev, x.mut()).wait();
          for (int step = 0; step < 6; ++step) {
            fake::of(dev.stream()).put([] { sleep_ms(600); });
            world.all_reduce(dev, x.mut()).wait();  // the host is done before the device begins
          }
          dev.synchronize();
          check(holds(dev, x, {128}), "another sum");
        }) == "no error");
}

TEST_CASE("nccl fake: calls are recorded under keys that are the same on all ranks") {
  WatchOptions options{.timeout_s = 60};
  for (int rank = 0; rank < 3; ++rank)
    options.recorders.push_back(std::make_shared<FlightRecorder>());
  const auto recorders = options.recorders;
  const auto wrong = on_gpus(
      3,
      [&](Comm<Cuda>& world, Cuda& dev) {
        auto x = tensor_of<float>(dev, {1, 2, 3});
        auto alone = world.split(world.rank() == 0 ? -1 : 0, 0);
        auto part = world.split(world.rank() == 1 ? 1 : 0, -world.rank());  // 2 and 0; 1
        const auto mine = recorders[static_cast<std::size_t>(world.rank())];
        const auto go = fake::new_point(false);
        fake::of(dev.stream()).put([go] { fake::wait(go); });
        world.all_reduce(dev, x.mut()).wait();
        const auto open = mine->contents().under_way;
        const bool queued = open.size() == 1 && open.front().since_s < 0;
        fake::pass(go);
        part.barrier();
        if (world.rank() == 0) world.send(dev, x.share(), 2);
        else if (world.rank() == 2) world.recv(dev, x.mut(), 0);
        else {
          world.send(dev, tensor_of<float>(dev, {4, 5, 6}), 2);
          world.recv(dev, x.mut(), 2);
        }
        if (world.rank() == 2) {
          world.recv(dev, x.mut(), 1);
          world.send(dev, x.share(), 1);
        }
        dev.synchronize();
        world.barrier();
        return queued ? "" : "the device has work before it";
      },
      options);
  for (const auto& text : wrong) CHECK(text == "");
  std::map<std::string, std::set<std::string>> calls;  // texts by key
  std::map<std::string, int> times;
  for (const auto& recorder : recorders) {
    const auto contents = recorder->contents();
    CHECK(contents.under_way.empty());
    for (const auto& record : contents.ended) {
      CHECK(to_text(record.call.where).starts_with("nccl_fake.cpp:"));
      REQUIRE(record.group);
      CHECK_FALSE(record.failed);
      calls[record.key()].insert(record.agreed());
      ++times[record.key()];
    }
  }
  for (const auto& [key, what] : calls) {
    CAPTURE(key);
    CHECK(what.size() == 1);
  }
  CHECK(calls["world#3"] == std::set<std::string>{"all_reduce of 3 f32 (sum)"});
  CHECK(times["world#3"] == 3);
  CHECK(times["world.2@2#1"] == 2);
  // Each queue of messages is a subgroup of the group.
  for (const std::string edge : {":0>2#1", ":1>2#1", ":2>1#1"}) {
    int ends = 0;
    for (const auto& [key, count] : times) ends += key.ends_with(edge) ? count : 0;
    CHECK(ends == 2);
  }
}

TEST_CASE("nccl fake: an asynchronous device's trace has its communication and wait") {
  CHECK(end_of(2, 60, [&](Comm<Cuda>& plain, Cuda&) {
          Cuda dev({.device = plain.rank(),
                    .pinned_bytes = 1 << 20,
                    .workspace_bytes = 256,
                    .trace = std::make_shared<Trace>()});
          auto world = observe<Cuda>(plain, std::make_shared<CallTracing<Cuda>>(dev, plain));
          auto x = tensor_of<float>(dev, {1});
          const auto event = world.all_reduce(dev, x.mut());
          { const auto scope = dev.scope("forward", 1); }
          event.wait(dev);
          auto& trace = *dev.trace();
          trace.resolve(trace.size());
          const auto spans = trace.spans();
          check(spans.size() == 3 && spans[0].name == "forward 1" &&
                    spans[1].kind == TraceKind::communication && spans[2].kind == TraceKind::wait,
                "there are ", spans.size(), " other spans");
        }) == "no error");
}

TEST_CASE("nccl fake: a tensor of another GPU is refused") {
  const auto message = message_of([] {
    run_ranks<Cuda>(2, [](Comm<Cuda> world) {
      Cuda dev({.device = 0, .pinned_bytes = 1 << 20, .workspace_bytes = 256});
      auto x = tensor_of<float>(dev, {1});
      world.all_reduce(dev, x.mut()).wait();
    });
  });
  CHECK(has(message, "rank 1 is on GPU 1, but the tensor on GPU 0"));
}
