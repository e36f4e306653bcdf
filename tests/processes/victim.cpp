// victim WHAT WHO LIMIT_S: a rank of a job that runs collectives and messages in a loop. In round 20 rank WHO
// misbehaves: it sleeps, exits, throws, kills or stops itself, or makes a call that differs from the others'.
#include <dhp/comm/gloo/connect.hpp>
#include <tests/support/misbehaving.hpp>

#include <cstdio>

using namespace dhp;

int main(int count, char** arguments) {
  try {
    check(count == 4, "victim WHAT WHO LIMIT_S");
    const auto me = ProcessRank::from_environment();
    check(me.has_value(), "no launcher has started this");
    ProcessOptions options;
    options.timeout_s = std::atof(arguments[3]);
    options.log = [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); };
    options.stuck = [](const std::string& message) {
      std::fprintf(stderr, "error: %s (stuck)\n", message.c_str());
      std::_Exit(3);
    };
    const auto body = [&](Comm<Cpu> world) {
      tests::rounds(arguments[1], std::atoi(arguments[2]), std::move(world), 5);
    };
    run_process_rank(*me, connect_gloo, body, options);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  }
  return 1;
}
