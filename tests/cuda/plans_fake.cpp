// cuDNN plans shared by processes, over the fake cuDNN. The first process compiles on several threads, later processes
// read files, and an unusable file is replaced.
#include <tests/cuda/fake_cublas.hpp>
#include <tests/cuda/fake_cudnn.hpp>
// The fakes come first, because the headers below call them.
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/library_report.hpp>
#include <tests/comm/ranks.hpp>
#include <tests/support/folder.hpp>

namespace {

// A temporary folder for the files of choices and plans, and engines that compile plans.
struct Processes {
  Folder folder;
  std::string choices = folder / "choices";

  Processes() {
    fake::engine_compiles = [](int) {};
  }
  ~Processes() { fake::engine_compiles = {}; }

  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    if (std::filesystem::exists(choices + ".plans"))
      for (const auto& entry : std::filesystem::directory_iterator(choices + ".plans"))
        found.push_back(entry.path());
    return found;
  }
};

// The record of one process.
struct Did {
  bool ran = true;
  int engine = -1;  // engine of the last problem
  int compilations = 0, plans_read = 0, heuristics = 0;
  std::vector<std::string> refusals{};
};
CudaOptions small(CudaOptions options) {
  options.device = 0;
  options.pinned_bytes = 1 << 12;
  options.workspace_bytes = 256;
  return options;
}
Did process(CudaOptions options, const std::vector<std::string>& problems = {"a"},
            const dhp::detail::cuda::CudnnRules& rules = {}) {
  if (options.host_threads == 0) options.host_threads = 2;
  fake::compilations = fake::plans_read = fake::heuristics_asked = 0;
  Cuda dev(small(options));
  Did did;
  for (const auto& problem : problems) {
    did.ran =
        did.ran && dev.cached<dhp::detail::cuda::CudnnPlans>().run(
                       dev, problem, rules, {}, [] { return dhp::detail::cuda::CudnnGraph(); });
    for (auto& sentence : library_refusals(dev)) did.refusals.push_back(std::move(sentence));
  }
  did.engine = fake::engines_asked.back();
  did.compilations = fake::compilations;
  did.plans_read = fake::plans_read;
  did.heuristics = fake::heuristics_asked;
  return did;
}

}  // namespace

TEST_CASE("plans fake: the first process compiles each candidate once, later ones none") {
  const Processes all;
  const auto cold = process({.plan_cache = all.choices});
  CHECK(cold.ran);
  CHECK(cold.compilations == fake::engines);
  CHECK(cold.refusals.empty());
  CHECK(all.files().size() == 1);
  for (int later = 0; later < 2; ++later) {
    const auto warm = process({.plan_cache = all.choices});
    CHECK(warm.ran);
    CHECK(warm.engine == cold.engine);
    CHECK(warm.compilations == 0);
    CHECK(warm.plans_read == 1);
    CHECK(warm.heuristics == 0);
    CHECK(warm.refusals.empty());
  }
  // Each problem has its own file.
  CHECK(process({.plan_cache = all.choices}, {"a", "b"}).compilations == fake::engines);
  CHECK(all.files().size() == 2);
  CHECK(process({.plan_cache = all.choices}, {"a", "b"}).compilations == 0);
}

TEST_CASE("plans fake: many candidates are timed, and few of them compiled") {
  const Processes all;
  fake::engines = 30;
  fake::first_precompiled = 10;
  fake::engines_asked.clear();
  const auto did = process({});
  const std::set<int> timed(fake::engines_asked.begin(), fake::engines_asked.end());
  fake::engines = 3;
  fake::first_precompiled = 1000;
  CHECK(did.ran);
  CHECK(timed == std::set<int>{0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21});
}

TEST_CASE("plans fake: cuDNN is not used if its gradients by heads would fill the GPU") {
  using namespace dhp::detail::cuda;
  auto problem = attention_problem(DType::bf16, 300, 256, 4, 256);  // rounded up to 512 samples
  const auto memory =
      std::exchange(fake::gpu_memory.total, (std::size_t{512} * 4 * 256 * 64 * 4 - 1) * 16);
  Cuda dev(small({}));
  fake::gpu_memory.total = memory;
  const auto plans = [&](std::int64_t key_heads, DqSums sums) {
    problem.key_heads = key_heads;
    const auto bytes = attention_gradient_bytes(problem, sums);
    return plans_for_attention(dev, problem, backward_text(problem, sums), {}, bytes) != nullptr;
  };
  CHECK(plans(0, DqSums::rows));
  CHECK_FALSE(plans(2, DqSums::rows));
  CHECK_FALSE(plans(0, DqSums::dense));
  problem.dropout = 0.1;  // only cuDNN has these random numbers
  CHECK(plans(2, DqSums::rows));
  const auto refusals = library_refusals(dev);
  REQUIRE(refusals.size() == 1);  // one sentence for each kind of problem
  CHECK(refusals[0].find("its gradients by heads would take 128 MiB") != std::string::npos);
}

TEST_CASE("plans fake: the allowed number of threads compiles candidates concurrently") {
  for (const int threads : {1, 2, 8}) {
    CAPTURE(threads);
    std::mutex mutex;
    std::condition_variable changed;
    int at_once = 0, most = 0;
    const Processes all;
    const int expected = std::min(threads, fake::engines);
    fake::engine_compiles = [&](int) {
      std::unique_lock lock(mutex);
      most = std::max(most, ++at_once);
      changed.notify_all();
      changed.wait_for(lock, std::chrono::seconds(threads == 1 ? 0 : 60),
                       [&] { return most >= expected; });
      --at_once;
    };
    CHECK(process({.host_threads = threads}).ran);
    CHECK(most == expected);
  }
}

TEST_CASE("plans fake: without a file nothing is kept") {
  const Processes all;
  CHECK(process({}).compilations == fake::engines);
  CHECK(process({}).compilations == fake::engines);
  CHECK(all.files().empty());
  // Without a usable folder, the process still runs.
  CHECK(process({.plan_cache = "/no/such/folder/choices"}).ran);
}

TEST_CASE("plans fake: a damaged plan is compiled again, with one message") {
  const Processes all;
  const auto cold = process({.plan_cache = all.choices}, {"a", "b"});
  const auto files = all.files();
  REQUIRE(files.size() == 2);
  const auto whole = text_of(files[0]);
  for (std::size_t at = 0; at < whole.size(); at += 7)
    for (const bool cut : {false, true}) {
      CAPTURE(at);
      for (const auto& file : files) {
        auto text = text_of(file);
        if (cut) text.resize(at);
        else text[at] = static_cast<char>(text[at] ^ 1);
        replace_file(file.string(), text);
      }
      const auto then = process({.plan_cache = all.choices}, {"a", "b"});
      CHECK(then.ran);
      CHECK(then.engine == cold.engine);
      CHECK(then.compilations == 2);
      CHECK(then.plans_read == 0);
      REQUIRE(then.refusals.size() == 1);
      CHECK(has(then.refusals[0],
                concat(all.choices, ".plans cannot be used (its file is damaged)")));
      CHECK(text_of(files[0]) == whole);
    }
  CHECK(process({.plan_cache = all.choices}, {"a", "b"}).compilations == 0);
}

TEST_CASE("plans fake: plans of another cuDNN version are ignored and replaced") {
  for (const bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    const Processes all;
    const CudaOptions options{.deterministic = deterministic, .plan_cache = all.choices};
    const int compiled = deterministic ? 1 : fake::engines;
    CHECK(process(options).compilations == compiled);
    ++fake::cudnn_version;
    const auto then = process(options);
    CHECK(then.ran);
    CHECK(then.compilations == compiled);
    // With timing, no choice is kept for this version, so the device looks for no kept plan.
    REQUIRE(then.refusals.size() == (deterministic ? 1 : 0));
    if (deterministic)
      CHECK(has(then.refusals[0], "(it is of another GPU, driver or library version)"));
    CHECK(all.files().size() == 1);
    CHECK(process(options).compilations == 0);
    --fake::cudnn_version;
  }
}

TEST_CASE("plans fake: a plan that cuDNN refuses is compiled again, with one message") {
  const Processes all;
  (void)process({.plan_cache = all.choices}, {"a", "b"});
  fake::text_version = "2";
  const auto then = process({.plan_cache = all.choices}, {"a", "b"});
  CHECK(then.ran);
  CHECK(then.compilations == 2);
  REQUIRE(then.refusals.size() == 1);
  CHECK(has(then.refusals[0], "(cuDNN refuses it)"));
  CHECK(process({.plan_cache = all.choices}, {"a", "b"}).compilations == 0);
  fake::text_version = "1";
}

TEST_CASE("plans fake: deterministic devices store plans, but ignore DHP_PLAN_CACHE's choices") {
  const Processes all;
  ::setenv("DHP_PLAN_CACHE", all.choices.c_str(), 1);
  const dhp::detail::cuda::CudnnRules rules{.deterministic = true};
  const auto cold = process({.deterministic = true}, {"a"}, rules);
  CHECK(cold.engine == 0);  // the library's favorite
  CHECK(cold.compilations == 1);
  CHECK(all.files().size() == 1);
  CHECK_FALSE(std::filesystem::exists(all.choices));
  const auto warm = process({.deterministic = true}, {"a"}, rules);
  CHECK(warm.engine == 0);
  CHECK(warm.compilations == 0);
  CHECK(warm.plans_read == 1);
  // A plan that was chosen under other rules is not used.
  CHECK(process({}).compilations == fake::engines);
  CHECK(process({.deterministic = true}, {"a"}, rules).compilations == 0);
  ::unsetenv("DHP_PLAN_CACHE");
}

TEST_CASE("plans fake: a stored plan is not used under stricter rules") {
  const Processes all;
  (void)process({.plan_cache = all.choices});
  const auto strict =
      process({.deterministic = true, .plan_cache = all.choices}, {"a"}, {.deterministic = true});
  CHECK(strict.heuristics > 0);
  CHECK(strict.plans_read == 0);
  CHECK(strict.compilations == 1);
}

TEST_CASE("plans fake: timing a plan does not change the tensor that it updates") {
  std::byte memory[64];
  for (const bool deterministic : {false, true}) {
    Cuda dev(small({.deterministic = deterministic}));
    fake::addresses_asked.clear();
    dhp::detail::cuda::CudnnArguments arguments;
    arguments.add(1, memory).add(2, memory + 32, 32);
    CHECK(dev.cached<dhp::detail::cuda::CudnnPlans>().run(
        dev, "adds", {}, arguments, [] { return dhp::detail::cuda::CudnnGraph(); }));
    REQUIRE(!fake::addresses_asked.empty());
    CHECK((fake::addresses_asked.size() > 1) == !deterministic);
    for (std::size_t at = 0; at < fake::addresses_asked.size(); ++at) {
      const auto& asked = fake::addresses_asked[at];
      REQUIRE(asked.size() == 2);
      CHECK(asked[0] == memory);
      CHECK((asked[1] == memory + 32) == (at + 1 == fake::addresses_asked.size()));
    }
  }
}
