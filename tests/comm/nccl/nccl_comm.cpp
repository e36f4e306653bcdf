// NCCL. Without a GPU, it must refuse. With a GPU: a world of one rank in this process, and every collective among all
// ranks if tests/cuda/ranks.sh started this process as one of them. nccl_ranks.sh runs the cases that end the world.

#if !__has_include(<nccl.h>)

TEST_CASE("nccl: skipped, nccl.h was not found") { MESSAGE("skipped: this build has no NCCL"); }

#else
#include <dhp/comm/nccl/connect.hpp>
#include <tests/comm/nccl/checks.hpp>

#include <csignal>

namespace {

bool no_gpu() {
  try {
    return detail::usable_gpus() < 1;
  } catch (const Error& error) {
    MESSAGE("skipped: ", error.sentence());
    return true;
  }
}
// Runs body(world, dev) among all processes, if there are others. `name` tells the worlds of the test cases apart.
template <class Body>
std::string among_all(const char* name, Body body, double timeout_s = 60) {
  if (no_gpu()) return "no error";
  auto me = ProcessRank::from_environment().value_or(ProcessRank());
  if (me.size == 1) {
    MESSAGE("skipped: there are no other ranks; tests/cuda/ranks.sh starts some");
    return "no error";
  }
  me.job += name;
  return message_of([&] {
    run_process_rank(me, connect_nccl,
                     [&](Comm<Cuda> world) {
                       Cuda dev;
                       body(world, dev);
                     },
                     {.timeout_s = timeout_s});
  });
}

// Runs collectives until the world ends, and returns the error that ended it.
std::string end_of(Comm<Cuda>& group, Cuda& dev) {
  return message_of([&] {
    for (;;) {
      auto x = tensor_of<float>(dev, {1});
      group.all_reduce(dev, x.mut()).wait();
      (void)x.to_host<float>(dev);
    }
  });
}

TEST_CASE("nccl: ids are made without a GPU, and differ") {
  const auto first = dhp::detail::new_nccl_id(), second = dhp::detail::new_nccl_id();
  CHECK(std::memcmp(&first, &second, sizeof first) != 0);
}

TEST_CASE("nccl: types, reductions and codes have names") {
  CHECK(dhp::detail::nccl_type(DType::bf16) == ncclBfloat16);
  CHECK(dhp::detail::nccl_reduction(Reduce::min) == ncclMin);
  dhp::detail::check_nccl(ncclSuccess, "ncclSomething");
  const auto text = message_of([] { dhp::detail::check_nccl(ncclRemoteError, "ncclSomething"); });
  CHECK(has(text, "ncclSomething failed: remote process exited"));
  CHECK(has(text, "(code 6)"));
}

TEST_CASE("nccl: ranks without a GPU of their own are refused") {
  int gpus = 0;
  dhp::detail::quietly(cudaGetDeviceCount(&gpus));
  const auto message = message_of([&] { run_ranks<Cuda>(gpus + 2, [](Comm<Cuda>) {}); });
  if (gpus == 0) CHECK(has(message, "no NVIDIA GPU is usable"));
  else CHECK(has(message, concat("a world of ", gpus + 2, " ranks needs ", gpus + 2, " GPUs")));
  const ProcessRank me{.rank = 0, .size = 2, .local_rank = 99};
  const auto other = message_of([&] { dhp::detail::check_local_gpu(me); });
  CHECK(has(other, gpus == 0 ? "no NVIDIA GPU is usable" : "is local rank 99"));
}

TEST_CASE("nccl: in a world of one every collective is the identity") {
  if (no_gpu()) return;
  Cuda dev;
  auto world = nccl_world(dev, 0, 1, dhp::detail::new_nccl_id(), {.timeout_s = 60});
  CHECK(world.size() == 1);
  CHECK(wrong_collectives(world, dev, {1000}) == "");
  world.barrier();
  auto part = world.split(0, 0);
  auto none = world.split(-1, 0);
  CHECK(part.size() == 1);
  CHECK(none.size() == 1);
  CHECK(wrong_collectives(part, dev, {10}, {DType::f32}) == "");
  CHECK(wrong_collectives(none, dev, {10}, {DType::f32}) == "");
  auto x = tensor_of<float>(dev, {1, 2, 3});
  CHECK(
      has(message_of([&] { world.send(dev, x.share(), 0); }), "rank 0 of 1 cannot send to rank 0"));
  CHECK(message_of([&] { world.broadcast(dev, x.mut(), 1); }) ==
        "broadcast: no rank 1 in a group of 1");
  world.abort("enough");
  CHECK(message_of([&] { world.all_reduce(dev, x.mut()); }) == "enough");
  CHECK(message_of([&] { (void)nccl_world(dev, 2, 2, dhp::detail::new_nccl_id()); }) ==
        "a world of 2 ranks has no rank 2");
}

TEST_CASE("nccl: a host program's communicator works on its stream and in its memory") {
  if (no_gpu()) return;
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  ncclComm_t hosts = nullptr;
  dhp::detail::check_nccl(ncclCommInitRank(&hosts, 1, dhp::detail::new_nccl_id(), 0),
                          "ncclCommInitRank");
  int blocks = 0;
  const CudaAllocator ordered{.allocate = [&](std::size_t bytes, cudaStream_t on) -> std::byte* {
                                void* data = nullptr;
                                if (cudaMallocAsync(&data, bytes, on) != cudaSuccess)
                                  return nullptr;
                                ++blocks;
                                return static_cast<std::byte*>(data);
                              },
                              .free =
                                  [&](std::byte* data, std::size_t, cudaStream_t on) {
                                    --blocks;
                                    dhp::detail::quietly(cudaFreeAsync(data, on));
                                  }};
  {
    auto world = nccl_world(hosts, {.timeout_s = 60});
    dhp::detail::check_nccl(ncclCommDestroy(hosts), "ncclCommDestroy");
    Cuda dev({.stream = stream, .allocator = ordered});
    CHECK(wrong_collectives(world, dev, {1000}, {DType::f32}) == "");
    CHECK(blocks == 1);  // the workspace
  }
  CHECK(blocks == 0);
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

TEST_CASE("nccl: a missing rank is waited for until the time limit only") {
  if (no_gpu()) return;
  Cuda dev;
  const auto start = std::chrono::steady_clock::now();
  CHECK(has(message_of(
                [&] { (void)nccl_world(dev, 0, 2, dhp::detail::new_nccl_id(), {.timeout_s = 2}); }),
            "rank 0 waits in the creation of a group at nccl_comm.cpp:"));
  CHECK(seconds_since(start) < 40);
}

TEST_CASE("nccl: an event orders the device, also if it is dropped") {
  if (no_gpu()) return;
  Cuda dev;
  auto world = nccl_world(dev, 0, 1, dhp::detail::new_nccl_id(), {.timeout_s = 60});
  auto x = tensor_of<float>(dev, {5}), y = tensor_of<float>(dev, {0});
  for (int round = 0; round < 100; ++round) {
    const auto event = world.all_gather(dev, x, y.mut());
    event.wait();
    dev.copy(x.mut().bytes(), y.view().bytes(), 4);
    (void)world.all_reduce(dev, x.mut());
  }
  CHECK(y.to_host<float>(dev)[0] == 5);
  const auto last = world.all_reduce(dev, x.mut());
  last.wait();
  dev.synchronize();
  CHECK(last.done());
}

TEST_CASE("nccl: all collectives work for all types among all ranks") {
  CHECK(among_all("-all", [](Comm<Cuda>& world, Cuda& dev) {
          CHECK(wrong_collectives(world, dev, {1, 1000, 70001}) == "");
          world.barrier();
        }) == "no error");
}

TEST_CASE("nccl: split orders ranks by key, and ranks may be in no part") {
  CHECK(among_all("-parts", [](Comm<Cuda>& world, Cuda& dev) {
          CHECK(wrong_parts(world, dev) == "");
        }) == "no error");
}

TEST_CASE("nccl: a full capacity of messages is sent both ways before any receive") {
  CHECK(among_all("-messages", [](Comm<Cuda>& world, Cuda& dev) {
          CHECK(wrong_ring(world, dev) == 0);
        }) == "no error");
}

TEST_CASE("nccl: collectives of several communicators overlap") {
  CHECK(among_all("-overlap", [](Comm<Cuda>& world, Cuda& dev) {
          CHECK(wrong_beside_others(world, dev) == 0);
        }) == "no error");
}

TEST_CASE("nccl end: unequal order of calls ends all ranks at the time limit" * doctest::skip()) {
  const auto work = [](Comm<Cuda>& world, Cuda& dev) {
    auto a = world.split(0, world.rank()), b = world.split(0, world.rank());
    auto x = tensor_of<float>(dev, {1}), y = tensor_of<float>(dev, {1});
    a.all_reduce(dev, x.mut()).wait();
    b.all_reduce(dev, y.mut()).wait();
    auto& first = world.rank() == 0 ? a : b;
    auto& second = world.rank() == 0 ? b : a;
    first.all_reduce(dev, x.mut()).wait();
    second.all_reduce(dev, y.mut()).wait();
    dev.synchronize();
    world.barrier();
  };
  const auto message = among_all("-order", work, 5);
  MESSAGE(message);
  CHECK(has(message, "waits in all_reduce of 1 f32 (sum) at nccl_comm.cpp:"));
}

TEST_CASE("nccl end: a rank that is killed ends the others" * doctest::skip()) {
  auto killed = std::chrono::steady_clock::now();
  const auto work = [&](Comm<Cuda>& world, Cuda& dev) {
    CHECK(wrong_collectives(world, dev, {100}, {DType::f32}) == "");
    if (world.rank() == 1) (void)std::raise(SIGKILL);
    killed = std::chrono::steady_clock::now();
    fail(end_of(world, dev));
  };
  const auto message = among_all("-killed", work, 5);
  MESSAGE(message);
  CHECK(has(message, "rank "));
  CHECK(has(message, "all_reduce"));
  CHECK(seconds_since(killed) < 40);
}

TEST_CASE("nccl end: a rank that stops ends the others at the time limit" * doctest::skip()) {
  const auto work = [](Comm<Cuda>& world, Cuda& dev) {
    CHECK(wrong_collectives(world, dev, {100}, {DType::f32}) == "");
    if (world.rank() == 1) (void)std::raise(SIGSTOP);
    fail(end_of(world, dev));
  };
  const auto message = among_all("-stopped", work, 5);
  MESSAGE(message);
  CHECK(has(message, "rank 1"));
  CHECK(has(message, "all_reduce of 1 f32 (sum) at nccl_comm.cpp:"));
  CHECK(has(message, "beyond the time limit of 5 s"));
}

}  // namespace
#endif
