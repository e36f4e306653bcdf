#include <dhp/cuda/tuned_choices.hpp>
#include <tests/support/folder.hpp>

#include <thread>
#include <vector>

using namespace dhp::detail::cuda;

TEST_CASE("tuned choices are read back from a whole file of the same machine only") {
  const Folder folder;
  const auto file = folder / "choices";
  {
    TunedChoices choices(file, "GPU 1, driver 2");
    CHECK_FALSE(choices.find("gemm 1").has_value());
    choices.keep("gemm 1", "a");
    choices.keep("conv 2", "b 2:3");
    choices.keep("gemm 1", "c");
  }
  const TunedChoices again(file, "GPU 1, driver 2");
  CHECK(again.size() == 2);
  CHECK(again.find("gemm 1") == "c");
  CHECK(again.find("conv 2") == "b 2:3");
  CHECK(TunedChoices(file, "GPU 1, driver 3").size() == 0);

  const auto text = again.text();
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    replace_file(file, text.substr(0, cut));
    CHECK(TunedChoices(file, "GPU 1, driver 2").size() == 0);
    auto damaged = text;
    damaged[cut] = static_cast<char>(damaged[cut] ^ 1);
    replace_file(file, damaged);
    CHECK(TunedChoices(file, "GPU 1, driver 2").size() == 0);
  }
  replace_file(file, text);
  CHECK(TunedChoices(file, "GPU 1, driver 2").size() == 2);

  const std::string before = "dhp tuned choices 1\nGPU 1, driver 2\ngemm 1 = a\n";
  replace_file(file, concat(before, "sum ", detail::fnv1a(before), "\n"));
  CHECK(TunedChoices(file, "GPU 1, driver 2").size() == 0);
}

TEST_CASE("tuned choices of two processes are merged; an unwritable file is no error") {
  const Folder folder;
  const auto file = folder / "choices";
  TunedChoices one(file, "GPU"), other(file, "GPU");
  one.keep("p", "1");
  other.keep("q", "2");
  CHECK(TunedChoices(file, "GPU").size() == 2);

  TunedChoices nowhere("/no/such/folder/choices", "GPU");
  nowhere.keep("p", "1");
  CHECK(nowhere.find("p") == "1");
  CHECK_THROWS(one.keep("two\nlines", "1"));
  CHECK_THROWS(one.keep("p = q", "1"));
}

TEST_CASE("tuned choices: ranks that share a file keep the choices of all") {
  const Folder folder;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      TunedChoices mine(folder / "choices", "GPU");
      for (int problem = 0; problem < 10; ++problem)
        mine.keep(concat("stage ", rank, " problem ", problem), "algorithm");
    });
  for (auto& rank : ranks) rank.join();
  CHECK(TunedChoices(folder / "choices", "GPU").size() == 40);
}
