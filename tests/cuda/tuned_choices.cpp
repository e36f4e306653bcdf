#include <dhp/cuda/tuned_choices.hpp>
#include <tests/support/test.hpp>

#include <unistd.h>

using namespace dhp::detail::cuda;

namespace {

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("dhp_choices_" + std::to_string(::getpid()) + ".txt"))
                         .string();
  ~TemporaryFile() { std::filesystem::remove(path); }
  void write(const std::string& text) const { replace_file(path, text); }
};

}  // namespace

TEST_CASE("choices come back from their file, and only whole and for their own machine") {
  const TemporaryFile file;
  {
    TunedChoices choices(file.path, "GPU 1, driver 2");
    CHECK_FALSE(choices.find("gemm 1").has_value());
    choices.keep("gemm 1", "a");
    choices.keep("conv 2", "b 2:3");
    choices.keep("gemm 1", "c");
  }
  const TunedChoices again(file.path, "GPU 1, driver 2");
  CHECK(again.size() == 2);
  CHECK(again.find("gemm 1") == "c");
  CHECK(again.find("conv 2") == "b 2:3");
  CHECK(TunedChoices(file.path, "GPU 1, driver 3").size() == 0);

  const auto text = again.text();
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    file.write(text.substr(0, cut));
    CHECK(TunedChoices(file.path, "GPU 1, driver 2").size() == 0);
    auto damaged = text;
    damaged[cut] = static_cast<char>(damaged[cut] ^ 1);
    file.write(damaged);
    CHECK(TunedChoices(file.path, "GPU 1, driver 2").size() == 0);
  }
  file.write(text);
  CHECK(TunedChoices(file.path, "GPU 1, driver 2").size() == 2);

  const std::string before = "dhp tuned choices 1\nGPU 1, driver 2\ngemm 1 = a\n";
  file.write(concat(before, "sum ", detail::fnv1a(before), "\n"));
  CHECK(TunedChoices(file.path, "GPU 1, driver 2").size() == 0);
}

TEST_CASE("both of two processes' finds are kept; a file that cannot be written stops nobody") {
  const TemporaryFile file;
  TunedChoices one(file.path, "GPU"), other(file.path, "GPU");
  one.keep("p", "1");
  other.keep("q", "2");
  CHECK(TunedChoices(file.path, "GPU").size() == 2);

  TunedChoices nowhere("/no/such/folder/choices", "GPU");
  nowhere.keep("p", "1");
  CHECK(nowhere.find("p") == "1");
  CHECK_THROWS(one.keep("two\nlines", "1"));
  CHECK_THROWS(one.keep("p = q", "1"));
}
