#include <dhp/comm/process_rank.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>

namespace {

using namespace tests;

// What these variables, and no others, say; the environment is as before afterwards.
std::string read(const std::map<std::string, std::string>& variables) {
  const char* const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "DHP_RENDEZVOUS", "DHP_JOB"};
  std::map<std::string, std::string> before;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) before[name] = value;
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::string text;
  try {
    const auto me = ProcessRank::from_environment();
    text = me ? concat(me->rank, " of ", me->size, ", local ", me->local_rank, ", in ", me->folder,
                       ", ", me->job)
              : "nobody";
  } catch (const Error& error) {
    text = error.sentence();
  }
  for (const char* name : names) ::unsetenv(name);
  for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
  return text;
}

TEST_CASE("process rank: what a launcher says") {
  CHECK(read({}) == "nobody");
  CHECK(read({{"RANK", "3"},
              {"WORLD_SIZE", "8"},
              {"LOCAL_RANK", "1"},
              {"DHP_RENDEZVOUS", "/there"},
              {"DHP_JOB", "j7"}}) == "3 of 8, local 1, in /there, j7");
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) == "0 of 1, local 0, in , job");
}

TEST_CASE("process rank: what makes no sense is refused") {
  CHECK(read({{"RANK", "3"}}) ==
        "RANK and WORLD_SIZE belong together, but only one of them is set");
  CHECK(read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "RANK is 2 and WORLD_SIZE is 2; ranks count from 0 to WORLD_SIZE - 1");
  CHECK(read({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}) == "RANK is \"1x\", not a whole number");
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", ""}}) == "WORLD_SIZE is \"\", not a whole number");
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "WORLD_SIZE is 2, but DHP_RENDEZVOUS names no folder for the ranks to meet in");
}

}  // namespace
