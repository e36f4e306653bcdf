// Slurm's lists: what they stand for, and what is refused rather than believed.
#include <dhp/comm/node_list.hpp>

#include <doctest/doctest.h>

#include <random>

namespace {

using namespace dhp;

std::string expanded(std::string_view list) {
  std::string text;
  try {
    for (const auto& name : expand_node_list(list)) text += (text.empty() ? "" : " ") + name;
  } catch (const Error& error) {
    return error.sentence();
  }
  return text;
}
std::string first(std::string_view list) {
  try {
    return first_host(list);
  } catch (const Error& error) {
    return error.sentence();
  }
}
std::string tasks(std::string_view list, std::int64_t node) {
  try {
    return concat(tasks_on_node(list, node));
  } catch (const Error& error) {
    return error.sentence();
  }
}

// The right sides are what Slurm's own scontrol show hostnames prints.
TEST_CASE("node list: names are written out as Slurm does") {
  CHECK(expanded("vm") == "vm");
  CHECK(expanded("rack1,rack2") == "rack1 rack2");
  CHECK(expanded("n[1-3,7]") == "n1 n2 n3 n7");
  CHECK(expanded("n[08-12],x[8-12]") == "n08 n09 n10 n11 n12 x8 x9 x10 x11 x12");
  CHECK(expanded("n[001-3]") == "n001 n002 n003");
  CHECK(expanded("y[98-101]") == "y98 y99 y100 y101");
  CHECK(expanded("n[1,3],a[01-02]b[1-2],rack1") == "n1 n3 a01b1 a01b2 a02b1 a02b2 rack1");
  CHECK(expanded("r[1-2]c[0-1,4]n[7]") == "r1c0n7 r1c1n7 r1c4n7 r2c0n7 r2c1n7 r2c4n7");
}

TEST_CASE("node list: letters after the brackets, and nothing but numbers") {
  CHECK(expanded("gpu-[1-2].cluster") == "gpu-1.cluster gpu-2.cluster");
  CHECK(expanded("[3-4]") == "3 4");
}

TEST_CASE("node list: the first host is that of the whole list") {
  for (const char* list : {"vm", "n[08-12],x", "r[2-3]c[0-1,4]n[7]", "gpu-[10,2].cluster,a"})
    CHECK(first(list) == expand_node_list(list).front());
  CHECK(first("n[1-9],m[") == "n1");
  CHECK(first("n[1-999999999]").find("there are too many hosts") != std::string::npos);
}

TEST_CASE("node list: what makes no sense is refused") {
  CHECK(expanded("n[3-1]") ==
        "\"n[3-1]\" is no list of Slurm's: the numbers count down at character 5");
  CHECK(expanded("") == "\"\" is no list of Slurm's: there is no name at character 0");
  CHECK(expanded("n1,,n2") == "\"n1,,n2\" is no list of Slurm's: there is no name at character 3");
  CHECK(expanded("n1,") == "\"n1,\" is no list of Slurm's: there is no name at character 3");
  CHECK(expanded("n[1-2") == "\"n[1-2\" is no list of Slurm's: there is no ',' at character 5");
  CHECK(expanded("n[]") == "\"n[]\" is no list of Slurm's: there is no number at character 2");
  CHECK(expanded("n[1-]") == "\"n[1-]\" is no list of Slurm's: there is no number at character 4");
  CHECK(expanded("n[1--2]") ==
        "\"n[1--2]\" is no list of Slurm's: there is no number at character 4");
  for (const char* list : {"n]", "n[[1]]", "n[1,,2]", "n[a]", "n[1-99999999999999999999]", "a b",
                           "n[-1]", "n[1-2]]", "a/b", "n\x7f", "n\xc3\xa9", ",n", "n[1-2],", "["}) {
    CAPTURE(list);
    CHECK(expanded(list).find("is no list of Slurm's") != std::string::npos);
  }
}

TEST_CASE("node list: a few characters do not become more names than there are hosts") {
  const auto longest = expand_node_list("n[1-1000000]");
  CHECK(longest.size() == 1'000'000);
  CHECK(longest.back() == "n1000000");
  for (const char* list :
       {"n[0-1000000]", "n[1-999999],m[1-2]", "n[1-500000,1-500001]", "a[1-1000]b[1-1001]",
        "n[0-9223372036854775807]", "a[0-9]b[0-9]c[0-9]d[0-9]e[0-9]f[0-9]g[0-9]h[0-9]i[0-9]j[0-9]",
        "a[1-999999]b[1-999999]c[1-999999]d[1-999999]e[1-999999]f[1-999999]"}) {
    CAPTURE(list);
    CHECK(expanded(list).find("hosts at character") != std::string::npos);
  }
  CHECK(expanded(std::string(253, 'n')) == std::string(253, 'n'));
  CHECK(expanded(std::string(254, 'n')).find("more than 253 characters") != std::string::npos);
  CHECK(expanded("n[" + std::string(300, '0') + "1]").find("more than 253") != std::string::npos);
}

TEST_CASE("node list: no text does any harm") {
  std::mt19937 random(7);
  const std::string_view letters = "na019[[]],,--(x).";
  int understood = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto size = random() % 12; size > 0; --size)
      text += random() % 50 == 0 ? static_cast<char>(random()) : letters[random() % letters.size()];
    try {
      const auto names = expand_node_list(text);
      ++understood;
      CHECK(names.front() == first_host(text));
    } catch (const Error&) {}
    tasks(text, static_cast<std::int64_t>(random() % 5));
  }
  CHECK(understood > 500);
}

TEST_CASE("node list: tasks on each node") {
  CHECK(tasks("4", 0) == "4");
  CHECK(tasks("2(x3),1", 0) == "2");
  CHECK(tasks("2(x3),1", 2) == "2");
  CHECK(tasks("2(x3),1", 3) == "1");
  CHECK(tasks("1,2,3(x2)", 1) == "2");
  CHECK(tasks("2(x3),1", 4) == "\"2(x3),1\" is no list of Slurm's: there is no ',' at character 7");
  for (const char* list : {"", "x", "2(3)", "2(x)", "2(x3", "-1", "99999999999999999999", ",1"}) {
    CAPTURE(list);
    CHECK(tasks(list, 9).find("is no list of Slurm's") != std::string::npos);
  }
}

}  // namespace
