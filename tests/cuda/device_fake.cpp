// A Cuda device over a fake of CUDA's runtime: copies through page-locked memory, the memory that it holds, and its
// refusals. Needs no GPU. A program of its own, because the fake defines cudaMalloc and similar functions.
#include <tests/cuda/fake_cuda.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/device/cuda.hpp>
#include <dhp/dlpack.hpp>
#include <dhp/train/state_copy.hpp>
#include <tests/comm/ranks.hpp>

namespace {

CudaOptions small() { return {.pinned_bytes = 1 << 12, .workspace_bytes = 256}; }

// With this pinned ring, copies of `many` bytes overlap with the device's work.
CudaOptions roomy() { return {.pinned_bytes = 8 << 20, .workspace_bytes = 256}; }
constexpr std::size_t many = 2 << 20;

// Stops a stream until the gate is destroyed.
struct Gate : fake::Gate {
  explicit Gate(cudaStream_t stream) { hold(stream); }
  ~Gate() { open(); }
};

// Returns whether this many bytes arrive from the host in time.
bool arrive(std::size_t bytes, int ms) {
  for (int tries = 0; tries < ms && fake::arrived_bytes < bytes; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return fake::arrived_bytes >= bytes;
}
void send(Cuda& dev, const std::shared_ptr<std::byte>& to, int value, std::size_t bytes = many) {
  const std::vector<std::byte> bytes_of(bytes, static_cast<std::byte>(value));
  dev.copy_from_host(to.get(), bytes_of.data(), bytes);
}
bool holds(Cuda& dev, const std::shared_ptr<std::byte>& from, int value, std::size_t bytes = many) {
  std::vector<std::byte> got(bytes);
  dev.copy_to_host(got.data(), from.get(), bytes);
  return std::count(got.begin(), got.end(), static_cast<std::byte>(value)) ==
         static_cast<std::ptrdiff_t>(bytes);
}

}  // namespace

TEST_CASE("device fake: copies of any size arrive complete, even if the GPU is late") {
  Cuda dev(small());
  std::mt19937 random(7);
  std::uniform_int_distribution<std::size_t> sizes(1, (1 << 11));
  constexpr std::size_t copies = 200;
  std::vector<std::byte> sent;
  auto there = dev.allocate(copies << 11);
  for (std::size_t copy = 0; copy < copies; ++copy) {
    const std::vector<std::byte> piece(sizes(random), static_cast<std::byte>(copy));
    fake::of(dev.stream()).put([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    dev.copy_from_host(there.get() + sent.size(), piece.data(), piece.size());
    sent.insert(sent.end(), piece.begin(), piece.end());
  }
  std::vector<std::byte> arrived(sent.size());
  dev.copy_to_host(arrived.data(), there.get(), arrived.size());
  CHECK(arrived == sent);
}

TEST_CASE("device fake: a large upload overlaps work, and is visible after that work") {
  Cuda dev(roomy());
  const auto x = dev.allocate(many), y = dev.allocate(many);
  send(dev, y, 1);  // the first makes the upload queue
  dev.fill_zero(x.get(), many);
  dev.synchronize();
  const auto before = fake::arrived_bytes.load();
  Gate work(dev.stream());
  dev.copy(y.get(), x.get(), many);  // earlier work reads x, which send() overwrites
  send(dev, x, 7);
  CHECK(arrive(before + many, 20000));
  CHECK(x.get()[0] == std::byte{0});
  work.open();
  CHECK(holds(dev, x, 7));
  CHECK(holds(dev, y, 0));

  // A small copy waits for earlier work like any other.
  Gate more(dev.stream());
  send(dev, x, 8, 1000);
  CHECK_FALSE(arrive(before + many + 1, 50));
}

TEST_CASE("device fake: an upload beside the work is complete before later work reads it") {
  std::mt19937 random(5);
  for (const bool slow_copies : {false, true}) {
    CAPTURE(slow_copies);
    Cuda dev(roomy());
    fake::copy_ms = slow_copies ? 2 : 0;
    std::vector<std::shared_ptr<std::byte>> all;
    std::vector<std::size_t> sizes;
    for (int value = 0; value < 40; ++value) {
      if (!slow_copies)
        fake::of(dev.stream()).put([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        });
      // Some copies have several parts, others are small.
      sizes.push_back(1000 + random() % (value % 8 == 0 ? 3 * many : many));
      all.push_back(dev.allocate(sizes.back()));
      send(dev, all.back(), value, sizes.back());
    }
    int correct = 0;
    for (int value = 0; value < 40; ++value)
      correct += holds(dev, all[static_cast<std::size_t>(value)], value,
                       sizes[static_cast<std::size_t>(value)]);
    CHECK(correct == 40);
    fake::copy_ms = 0;
  }
}

TEST_CASE("device fake: an upload waits until earlier work has left its memory") {
  Cuda dev(roomy());
  const auto x = dev.allocate(many);
  auto block = dev.allocate(8 << 20);
  const auto before = fake::arrived_bytes.load();
  const auto held = dev.memory().held_bytes();
  Gate work(dev.stream());
  dev.fill_zero(block.get(), 8 << 20);
  block.reset();  // is reused by the upload
  send(dev, x, 7);
  CHECK(dev.memory().held_bytes() == held);
  CHECK_FALSE(arrive(before + 1, 50));
  work.open();
  CHECK(holds(dev, x, 7));
}

TEST_CASE("device fake: without free memory, or on a host's stream, uploads do not overlap") {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (const bool guest : {false, true}) {
    CAPTURE(guest);
    auto options = roomy();
    if (guest) options.stream = stream;
    Cuda dev(options);
    const auto x = dev.allocate(many);
    const auto streams = fake::streams.load();
    if (!guest) fake::gpu_memory.total = fake::gpu_memory.held;
    {
      Gate work(dev.stream());
      const auto before = fake::arrived_bytes.load();
      send(dev, x, 7);
      CHECK_FALSE(arrive(before + 1, 50));
    }
    CHECK(holds(dev, x, 7));
    fake::gpu_memory.total = std::numeric_limits<std::size_t>::max();
    send(dev, x, 8);  // no copy stream later, either
    CHECK(holds(dev, x, 8));
    CHECK(fake::streams == streams);
  }
  cudaStreamDestroy(stream);
}

TEST_CASE("device fake: an unawaited copy to the host keeps its block until it ends") {
  Cuda dev(small());
  const auto from = dev.allocate(100);
  Gate gate(dev.stream());
  const auto* const dropped = dev.start_copy_to_host(from.get(), 100).data();
  const auto second = dev.start_copy_to_host(from.get(), 100);
  CHECK(second.data() != dropped);
  CHECK(cudaGetLastError() == cudaSuccess);  // cudaErrorNotReady was cleared
  gate.open();
  second.wait_here();
  CHECK(dev.start_copy_to_host(from.get(), 100).data() == dropped);
}

TEST_CASE("device fake: a copy of the state overlaps later work and has the old values") {
  constexpr int pieces = 4;
  for (const bool replayed : {false, true})
    for (const bool short_of_memory : {false, true}) {
      INFO("replayed ", replayed, " short_of_memory ", short_of_memory);
      Cuda dev(roomy());
      fake::copy_ms = 20;
      std::vector<std::shared_ptr<std::byte>> state;
      std::vector<HeldPiece<Cuda>> held;
      for (int at = 0; at < pieces; ++at) {
        state.push_back(dev.allocate(many));
        send(dev, state.back(), at + 1);
        held.push_back({{.name = "x", .shape = {many / 4}, .range = {0, many / 4}},
                        View<Cuda>(state.back().get(), DType::f32, {many / 4})});
      }
      if (short_of_memory) fake::gpu_memory.total = fake::gpu_memory.held;
      dhp::detail::StateCopy<Cuda> copy(replayed);
      copy.start(dev, held);
      if (!replayed) copy.finish(dev);  // a replayed step does not call finish()
      for (const auto& tensor : state) dev.fill_zero(tensor.get(), many);
      int correct = 0;
      for (const auto& copied : copy.pieces()) {
        const auto* bytes = copied.data.bytes();
        correct += std::count(bytes, bytes + many, bytes[0]) == many &&
                   bytes[0] == static_cast<std::byte>(correct + 1);
      }
      CHECK(correct == pieces);
      fake::copy_ms = 0;
      fake::gpu_memory.total = std::numeric_limits<std::size_t>::max();
    }
}

TEST_CASE("device fake: work that only reads the state does not wait for its copy") {
  Cuda dev(roomy());
  const auto x = dev.allocate(many), y = dev.allocate(many);
  send(dev, x, 7);
  dev.synchronize();
  fake::copy_ms = 400;
  const auto copy = dev.start_copy_beside(x.get(), many);
  fake::copy_ms = 0;
  const auto begin = std::chrono::steady_clock::now();
  dev.fill_zero(y.get(), many);
  dev.synchronize();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(300));
  copy.wait_here();
  CHECK(copy.data()[many - 1] == std::byte{7});
}

TEST_CASE("device fake: a recorded step reads what was uploaded during the step before") {
  Cuda dev(roomy());
  const auto slot = dev.allocate(many), result = dev.allocate(many);
  const auto step = [&] { dev.copy(result.get(), slot.get(), many); };
  step();
  const auto graph = dev.record(step);
  fake::copy_ms = 5;
  for (int number = 0; number < 6; ++number) {
    CAPTURE(number);
    const auto batch = dev.allocate(many);  // a loader's batch, which the recorder copies
    send(dev, batch, number);
    dev.copy(slot.get(), batch.get(), many);
    dev.run(graph);
    if (number % 2 == 1) CHECK(holds(dev, result, number));
  }
  fake::copy_ms = 0;
}

TEST_CASE("device fake: a recorded step reuses the memory of the unrecorded one") {
  Cuda dev(small());
  const auto before = fake::gpu_memory.held;
  const auto work = [&] {
    const auto first = dev.allocate(1 << 20), second = dev.allocate(3 << 20);
    dev.fill_zero(first.get(), 1 << 20);
    dev.copy(second.get(), first.get(), 1 << 20);
  };
  work();
  CHECK(fake::gpu_memory.held - before == 4 << 20);
  const auto graph = dev.record(work);
  CHECK(fake::gpu_memory.held - before == 4 << 20);
  dev.run(graph);
  CHECK(dev.memory().in_use_bytes() == 512);  // the workspace
  CHECK(dev.memory().held_bytes() == fake::gpu_memory.held);
  CHECK(dev.memory().max_held_bytes() == dev.memory().held_bytes());
  work();  // cannot use the graph's memory
  CHECK(fake::gpu_memory.held - before == 8 << 20);
  dev.memory().trim();
  CHECK(dev.memory().held_bytes() == fake::gpu_memory.held);
  CHECK(dev.memory().max_held_bytes() - dev.memory().held_bytes() == 4 << 20);
}

TEST_CASE("device fake: if memory is short, free blocks are released; errors give the amounts") {
  auto& memory = fake::gpu_memory;
  const auto before = memory.held;
  {
    Cuda dev(small());
    auto kept = dev.allocate(1 << 20);
    const auto graph = dev.record([&] { (void)dev.allocate(1 << 20); });
    (void)dev.allocate(3 << 20);
    const auto most = memory.held;
    memory.total = most + (1 << 20);
    CHECK(dev.allocate(4 << 20) != nullptr);  // needs the freed block of 3 MiB
    CHECK(memory.held == most + (1 << 20));   // the graph has kept its own block
    CHECK(dev.memory().held_bytes() == memory.held - before);
    const auto error = message_of([&] { (void)dev.allocate(5 << 20); });
    CHECK(has(error,
              "out of memory: cannot allocate 5242880 bytes for a tensor in GPU 0 (1049088 "
              "of its "));
    CHECK(has(error, concat(" bytes are this rank's tensors, ", 4 << 20, " are free)")));
    CHECK(has(error, "a smaller micro-batch, recomputation"));
    CHECK(cudaGetLastError() == cudaSuccess);  // the next kernel reports no error
    // A smaller allocation still succeeds.
    CHECK(dev.allocate(4 << 20) != nullptr);
    memory.total = memory.held;
    CHECK(has(message_of([&] { Cuda other(small()); }), "out of memory: cannot allocate 256 byt"));
  }
  memory.total = std::numeric_limits<std::size_t>::max();
  CHECK(memory.held == before);
}

TEST_CASE("device fake: memory is allocated on the device's GPU, whichever the thread uses") {
  auto& memory = fake::gpu_memory;
  const int before = memory.freed_elsewhere;
  const auto owner_of = [&](const std::shared_ptr<std::byte>& block) {
    const std::lock_guard lock(memory.mutex);
    return memory.owners.at(block.get());
  };
  auto options = small();
  options.device = 2;
  auto dev = std::make_unique<Cuda>(options);
  check_cuda(cudaSetDevice(1), "cudaSetDevice");
  CHECK(owner_of(dev->allocate(1 << 20)) == 2);
  CHECK(fake::current_gpu == 1);
  dev->memory().trim();
  CHECK(fake::current_gpu == 1);
  auto block = dev->allocate(1 << 21);
  dev.reset();
  std::thread([&] { block.reset(); }).join();  // this thread's current GPU is 0
  CHECK(memory.freed_elsewhere == before);
  check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("device fake: unsuitable GPUs and libraries are refused with a sentence") {
  const auto says = [](CudaOptions options) { return message_of([&] { Cuda dev(options); }); };
  auto options = small();
  options.device = fake::gpus;
  CHECK(has(says(options), "no GPU 4: this process sees 4; see CUDA_VISIBLE_DEVICES"));
  fake::visible_gpus = 0;
  CHECK(says(small()) ==
        "no NVIDIA GPU is usable (none is visible); on this machine use a build for the CPU: cmake "
        "--preset release");
  fake::visible_gpus = fake::gpus;

  options.device = 0;
  fake::capability_major = 7, fake::capability_minor = 5;
  CHECK(says(options) ==
        "GPU 0 (Fake) has compute capability 7.5; dhp needs 8.0 (Ampere) or later");
  fake::capability_major = 8, fake::capability_minor = 0;
  CHECK(says(options) == "no error");
  fake::capability_major = 9;

  const auto refuses = [&](std::size_t& version, const char* name, const char* file) {
    const auto compiled = version;
    CAPTURE(name);
    version = compiled + 10000;
    CHECK(has(says(options), concat(name, " ", compiled / 10000 + 1, ".")));
    version = compiled - 1;  // older
    CHECK(has(says(options),
              concat(" was loaded, but this program was compiled for ", compiled / 10000, ".",
                     compiled / 100 % 100, ".", compiled % 100, ", and needs the same major ")));
    CHECK(has(says(options), concat("put the folder of the right ", file, " into LD_")));
    version = compiled + 100;  // newer
    CHECK(says(options) == "no error");
    version = compiled;
  };
  refuses(fake::cudnn_version, "cuDNN", "libcudnn");
  refuses(fake::cublas_version, "cuBLASLt", "libcublasLt");
}

TEST_CASE("device fake: persistent blocks have their exact size and are returned to the GPU") {
  Cuda dev(small());
  const auto& memory = dev.memory();
  const auto held = memory.held_bytes(), in_use = memory.in_use_bytes();
  auto block = dev.allocate_persistent(1'000'001);
  CHECK(memory.held_bytes() == held + 1'000'001);
  CHECK(memory.in_use_bytes() == in_use + 1'000'001);
  block.reset();
  CHECK(memory.held_bytes() == held);
  CHECK(memory.in_use_bytes() == in_use);
}

TEST_CASE("device fake: DLPack exports a tensor, and only the same GPU imports it") {
  auto options = small();
  options.device = 1;
  Cuda dev(options);
  options.device = 2;
  Cuda other(options);
  const auto before = dev.memory().in_use_bytes();
  auto* const managed =
      to_dlpack<dlpack::DLManagedTensor>(dev, Tensor<Cuda>::zeros(dev, DType::bf16, {3, 1 << 20}));
  CHECK(managed->dl_tensor.device.device_type == dlpack::cuda);
  CHECK(managed->dl_tensor.device.device_id == 1);
  CHECK(message_of([&] { (void)from_dlpack(other, managed); }) ==
        "from_dlpack: the tensor is on device 1 of type 2, not on GPU 2; move it there first");
  auto back = from_dlpack(dev, managed);
  CHECK(back.view().bytes() == managed->dl_tensor.data);
  CHECK(back.unique());
  back = {};
  CHECK(dev.memory().in_use_bytes() == before);
}

TEST_CASE("device fake: begin() gives the memory that others use, and refuses an absent GPU") {
  const auto before = Cuda::begin(1);
  CHECK(before.seconds >= 0);
  const std::size_t bytes = 5 << 20;
  void* block = nullptr;
  cudaMalloc(&block, bytes);
  CHECK(Cuda::begin(1).used_bytes == before.used_bytes + bytes);
  cudaFree(block);
  CHECK(message_of([] { (void)Cuda::begin(7); }) == "no GPU 7: this process sees 4");
}
