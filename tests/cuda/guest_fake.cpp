// dhp inside a program that already has a stream, memory and communicators, over fakes of CUDA and NCCL: dhp uses them
// as the program says, and frees none of them. Needs no GPU. A program of its own, like nccl_fake.cpp.
#include <tests/cuda/fake_nccl.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/comm/nccl/nccl_comm.hpp>
#include <tests/comm/nccl/checks.hpp>

namespace {

CudaOptions small(CudaOptions options = {}) {
  options.pinned_bytes = 1 << 20;
  options.workspace_bytes = 256;
  return options;
}
cudaStream_t new_stream() {
  cudaStream_t result = nullptr;
  CHECK(cudaStreamCreateWithFlags(&result, cudaStreamNonBlocking) == cudaSuccess);
  return result;
}

// A host program's allocator, which records requests and their streams.
struct HostMemory {
  struct Call {
    std::byte* data;
    std::size_t bytes;
    cudaStream_t stream;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> given, freed;
  bool empty = false;

  CudaAllocator allocator() {
    return {.allocate = [this](std::size_t bytes, cudaStream_t stream) -> std::byte* {
              if (empty) return nullptr;
              auto* const data = static_cast<std::byte*>(::operator new(bytes));
              const std::lock_guard lock(fake::gpu_memory.mutex);
              fake::gpu_memory.add(data, bytes);
              given.push_back({data, bytes, stream});
              return data;
            },
            .free =
                [this](std::byte* data, std::size_t bytes, cudaStream_t stream) {
                  freed.push_back({data, bytes, stream});
                  const std::lock_guard lock(fake::gpu_memory.mutex);
                  fake::gpu_memory.remove(data);
                  ::operator delete(data);
                }};
  }
};

// Calls body(host's communicator, rank) on a thread for each rank; returns the results.
std::vector<std::string> with_host_comms(int n, bool blocking, auto body) {
  std::vector<std::string> results(static_cast<std::size_t>(n));
  const auto id = dhp::detail::new_nccl_id();
  on_threads(results.size(), [&](std::size_t at) {
    const int rank = static_cast<int>(at);
    cudaSetDevice(rank);
    ncclComm_t hosts = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    auto code = ncclCommInitRankConfig(&hosts, n, id, rank, &config);
    while (code == ncclInProgress) ncclCommGetAsyncError(hosts, &code);
    const auto error = message_of([&] { results[at] = body(hosts, rank); });
    if (error != "no error") results[at] = error;
    ncclCommDestroy(hosts);
  });
  return results;
}

// Runs an all-reduce on the host's communicator, which must give 1 + 2 + ... on each rank.
std::string sum_over(ncclComm_t hosts, int n, int rank) {
  int value = rank + 1;
  const auto stream = new_stream();
  auto code = ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, hosts, stream);
  while (code == ncclInProgress) ncclCommGetAsyncError(hosts, &code);
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return code == ncclSuccess && value == n * (n + 1) / 2 ? "" : "the host's own sum is wrong; ";
}

// The example of docs/gpu.md: a sum over the ranks, with the host program's stream, memory and communicator.
double sum_of_ranks(double mine, cudaStream_t stream, dhp::CudaAllocator pool, ncclComm_t comm) {
  auto world = dhp::nccl_world(comm, {.timeout_s = 60});
  dhp::Cuda dev({.stream = stream, .allocator = std::move(pool)});
  auto x = dhp::Tensor<dhp::Cuda>::from_host(dev, {1}, std::vector<double>{mine});
  world.all_reduce(dev, x.mut()).wait();
  return x.to_host<double>(dev)[0];
}

}  // namespace

TEST_CASE("guest fake: work is ordered on the host's stream, and the stream is not destroyed") {
  const int before = fake::streams;
  const auto stream = new_stream();
  const auto go = std::make_shared<std::atomic<bool>>(false);
  {
    Cuda dev(small({.stream = stream}));
    CHECK(dev.stream() == stream);
    CHECK(fake::streams == before + 1);  // the device made none
    auto x = Tensor<Cuda>::zeros(dev, DType::i32, {1});
    dev.synchronize();
    const auto* there = reinterpret_cast<const int*>(x.view().bytes());
    fake::of(stream).put([go] { fake::wait(go); });
    const int seven = 7;
    dev.copy_from_host(x.mut().bytes(), reinterpret_cast<const std::byte*>(&seven), sizeof seven);
    sleep_ms(20);
    CHECK(*there == 0);  // the host's work has run first
    fake::pass(go);
    CHECK(x.to_host<int>(dev) == std::vector{7});
  }
  CHECK(fake::streams == before + 1);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  cudaStreamDestroy(stream);

  Cuda dev(small({.stream = nullptr}));  // CUDA's default stream
  CHECK(dev.stream() == nullptr);
  CHECK(tensor_of<std::int32_t>(dev, {3, 4}).to_host<int>(dev) == std::vector{3, 4});
  CHECK(has(message_of([&] { (void)dev.record([] {}); }), "on its default stream"));
}

TEST_CASE("guest fake: the device's own stream lives as long as its tensors") {
  const int before = fake::streams;
  Tensor<Cuda> x;
  {
    Cuda dev(small());
    x = Tensor<Cuda>(dev, DType::f32, {5});
    CHECK(fake::streams == before + 1);
  }
  CHECK(fake::streams == before + 1);
  x = {};
  CHECK(fake::streams == before);
}

TEST_CASE("guest fake: the host's allocator provides all memory and gets each block back at once") {
  HostMemory host;
  const int before = fake::blocks;
  std::optional<Cuda> dev(std::in_place, small({.allocator = host.allocator()}));
  CHECK(fake::blocks == before + 1);  // the pinned ring
  CHECK(host.given.size() == 1);      // only the workspace
  auto x = Tensor<Cuda>(*dev, DType::f32, {25});
  CHECK(host.given.back() == HostMemory::Call{x.mut().bytes(), 100, dev->stream()});
  CHECK(dev->memory().in_use_bytes() == 356);
  auto none = dev->allocate(0);
  CHECK(host.given.back().bytes == 1);
  none.reset();
  CHECK(host.freed == std::vector{host.given.back()});
  CHECK(dev->memory().in_use_bytes() == 356);
  CHECK(dev->memory().held_bytes() == 356);
  CHECK(dev->memory().max_held_bytes() == 357);

  host.empty = true;
  CHECK(has(message_of([&] { (void)dev->allocate(1000); }),
            concat("out of memory: cannot allocate 1000 bytes for a tensor in the host program's "
                   "memory of GPU ",
                   dev->number(), " (356 bytes of it are this rank's tensors)")));
  CHECK(has(message_of([&] { (void)dev->record([] {}); }), "a recorded step owns its memory"));

  // Tensors may outlive the device.
  dev.reset();
  CHECK(host.freed.size() == 2);
  x = {};
  CHECK(host.freed.size() == 3);
  CHECK(host.freed.back().bytes == 100);

  auto incomplete = host.allocator();
  incomplete.free = nullptr;
  CHECK(message_of([&] { Cuda refused(small({.allocator = incomplete})); }) ==
        "an allocator of GPU memory needs both allocate and free");
}

TEST_CASE("guest fake: without an allocator, freed blocks are reused until trimmed") {
  const int before = fake::blocks;
  {
    Cuda dev(small());
    const int result = fake::blocks;
    auto block = dev.allocate(1000);
    const auto* const place = block.get();
    CHECK(dev.memory().in_use_bytes() == 512 + 1024);  // one is the workspace
    block.reset();
    CHECK(dev.memory().in_use_bytes() == 512);
    CHECK(dev.allocate(2000).get() != place);
    CHECK(dev.allocate(1024).get() == place);
    dev.memory().trim();
    CHECK(fake::blocks == result);
  }
  CHECK(fake::blocks == before);
}

TEST_CASE("guest fake: a world uses the host's communicator and leaves it usable") {
  for (const bool blocking : {true, false})
    for (const int n : {1, 2, 3}) {
      INFO("blocking ", blocking, " n ", n);
      const auto wrong = with_host_comms(n, blocking, [&](ncclComm_t hosts, int rank) {
        std::string text;
        {
          auto world = nccl_world(hosts, {.timeout_s = 60});
          if (world.rank() != rank || world.size() != n)
            dhp::detail::append_text(text, "another place; ");
          Cuda dev(small({.device = rank}));
          dhp::detail::append_text(text, wrong_collectives(world, dev, {100}, {DType::f32}));
          dhp::detail::append_text(text, sum_over(hosts, n, rank));
          auto x = tensor_of<std::int32_t>(dev, {rank});
          auto event = world.all_reduce(dev, x.mut(), Reduce::max);
          dhp::detail::append_text(text, sum_over(hosts, n, rank));  // dhp's maximum is pending
          event.wait();
          if (!holds(dev, x, {n - 1})) dhp::detail::append_text(text, "a maximum is wrong; ");
          if (n > 1) dhp::detail::append_text(text, wrong_parts(world, dev));
        }
        dhp::detail::append_text(text, sum_over(hosts, n, rank));
        return text;
      });
      for (const auto& text : wrong) CHECK(text == "");
    }
  CHECK(fake::comms.load() == 0);
}

TEST_CASE("guest fake: the host's stream, memory and communicator work as in docs/gpu.md") {
  const auto wrong = with_host_comms(2, true, [&](ncclComm_t hosts, int rank) {
    HostMemory memory;
    const auto stream = new_stream();
    const double sum = sum_of_ranks(rank + 0.5, stream, memory.allocator(), hosts);
    cudaStreamDestroy(stream);
    return concat(sum, ", ", memory.given.size() - memory.freed.size(), " not given back");
  });
  for (const auto& text : wrong) CHECK(text == "2, 0 not given back");
}

TEST_CASE("guest fake: the end of a world leaves the host's communicator usable") {
  const auto ends = with_host_comms(2, false, [&](ncclComm_t hosts, int rank) {
    auto world = nccl_world(hosts, {.timeout_s = 60});
    world.barrier();
    world.abort("enough");
    auto text = message_of([&] { world.barrier(); });
    dhp::detail::append_text(text, sum_over(hosts, 2, rank));
    return text;
  });
  for (const auto& text : ends) CHECK(text == "enough");

  const auto late = with_host_comms(2, false, [&](ncclComm_t hosts, int rank) {
    auto world = nccl_world(hosts, {.timeout_s = 1});
    auto text = message_of([&] {
      if (rank == 0) world.barrier();
    });
    dhp::detail::append_text(text, sum_over(hosts, 2, rank));
    return text;
  });
  CHECK(has(late[0], "rank 0 waits in barrier at guest_fake.cpp:"));
  CHECK(has(late[0], "beyond the time limit of 1 s"));
  CHECK(late[1] == "no error");
}

TEST_CASE("guest fake: ranks of one process can share one watchdog") {
  auto shared = std::make_shared<Watchdog>(2, WatchOptions{.timeout_s = 60});
  const auto ends = with_host_comms(2, true, [&](ncclComm_t hosts, int rank) {
    auto world = nccl_world(shared, hosts);
    if (rank == 1) world.abort("rank 1 is out of paper");
    return message_of([&] {
      for (;;) world.barrier();
    });
  });
  for (const auto& text : ends) CHECK(text == "rank 1 is out of paper");
  shared.reset();  // waits for the end
  CHECK(fake::comms.load() == 0);
}

TEST_CASE("guest fake: a rank missing from the communicator's copy is reported at the time limit") {
  const auto id = dhp::detail::new_nccl_id();
  std::vector<ncclComm_t> hosts(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclCommInitRankConfig(&hosts[rank], 2, id, static_cast<int>(rank), &config);
  }
  for (auto* const each : hosts)
    for (auto code = ncclInProgress; code == ncclInProgress;) ncclCommGetAsyncError(each, &code);
  const auto late = message_of([&] { (void)nccl_world(hosts[0], {.timeout_s = 1}); });
  CHECK(has(late, "rank 0 waits in the copy of a communicator at guest_fake.cpp:"));
  CHECK(has(late, "for the ranks of its group, beyond the time limit of 1 s"));
  for (auto* const each : hosts) ncclCommAbort(each);
  CHECK(fake::comms.load() == 0);
}
