// Environment variables and Slurm's lists. process_rank.cpp tests the variables of each launcher.
#include <dhp/comm/rendezvous/launcher.hpp>
#include <tests/support/test.hpp>

namespace {

using namespace dhp::detail;

// Returns the result of read() as text, or the sentence of its error.
template <class Read>
std::string text_of(Read read) {
  try {
    return concat(read());
  } catch (const Error& error) {
    return error.sentence();
  }
}
std::string first(std::string_view list) {
  return text_of([&] { return first_host(list); });
}
std::string tasks(const std::string& list, int node) {
  return text_of([&] { return tasks_on_node(list, node); });
}

TEST_CASE("environment: only whole numbers are accepted as numbers") {
  const auto number = [](const char* text) {
    return text_of([&] {
      return detail::Environment(detail::Environment::Variables{{"N", text}}).number("N").value();
    });
  };
  for (const char* good : {"12", "-3", "2147483647"}) CHECK(number(good) == good);
  for (const char* bad : {"", " 1", "1 ", "1x", "x", "1.0", "+1", "0x1", "2147483648", "--1"})
    CHECK(number(bad) == concat("N is \"", bad, "\", not a whole number"));
}

TEST_CASE("environment: holds the process's variables as they were when it was read") {
  REQUIRE(::setenv("DHP_TEST_OF_ENVIRONMENT", "a=b", 1) == 0);
  const auto before = detail::Environment::of_process();
  REQUIRE(::unsetenv("DHP_TEST_OF_ENVIRONMENT") == 0);
  CHECK(before.text("DHP_TEST_OF_ENVIRONMENT") == "a=b");
  CHECK_FALSE(detail::Environment::of_process().has("DHP_TEST_OF_ENVIRONMENT"));
}

// The expected host is the first that Slurm's `scontrol show hostnames` prints.
TEST_CASE("launcher: the first host of a Slurm list is found") {
  CHECK(first("vm") == "vm");
  CHECK(first("rack1,rack2") == "rack1");
  CHECK(first("n[1-3,7]") == "n1");
  CHECK(first("n[08-12],x[8-12]") == "n08");
  CHECK(first("n[10,2]") == "n10");
  CHECK(first("r[2-3]c[0-1,4]n[7]") == "r2c0n7");
  CHECK(first("gpu-[1-2].cluster,a") == "gpu-1.cluster");
  CHECK(first("[3-4]") == "3");
  CHECK(first("n[1-9],m[") == "n1");
  CHECK(first(std::string(253, 'n')) == std::string(253, 'n'));
}

TEST_CASE("launcher: malformed lists of hosts are refused") {
  CHECK(first("n[1-2") == "\"n[1-2\" is no list of hosts as Slurm writes it");
  for (const auto& list :
       {std::string(), std::string(254, 'n'), std::string("n]"), std::string("n[[1]]"),
        std::string("n[]"), std::string("n[a]"), std::string("a b"), std::string("n[-1]"),
        std::string("n[1-2]]"), std::string("a/b"), std::string("n\x7f"), std::string("n\xc3\xa9"),
        std::string(",n"), std::string("[")}) {
    CAPTURE(list);
    CHECK(first(list).find("is no list of hosts") != std::string::npos);
  }
}

TEST_CASE("launcher: Slurm's number of tasks on each node is parsed") {
  CHECK(tasks("4", 0) == "4");
  CHECK(tasks("2(x3),1", 0) == "2");
  CHECK(tasks("2(x3),1", 2) == "2");
  CHECK(tasks("2(x3),1", 3) == "1");
  CHECK(tasks("1,2,3(x2)", 1) == "2");
  CHECK(tasks("2(x3),1", 4) ==
        "\"2(x3),1\" does not say how many tasks each node has, as Slurm writes it");
  for (const char* list : {"", "x", "2(3)", "2(x)", "2(x3", "-1", "99999999999999999999", ",1"}) {
    CAPTURE(list);
    CHECK(tasks(list, 9).find("does not say how many tasks") != std::string::npos);
  }
}

TEST_CASE("launcher: random text never crashes the parsers") {
  std::mt19937 random(7);
  const std::string_view letters = "na019[[]],,--(x).";
  int understood = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto size = random() % 12; size > 0; --size)
      text += random() % 50 == 0 ? static_cast<char>(random()) : letters[random() % letters.size()];
    understood += first(text).find("is no list") == std::string::npos;
    tasks(text, static_cast<int>(random() % 5));
  }
  CHECK(understood > 500);
}

}  // namespace
