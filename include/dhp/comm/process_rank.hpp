// ProcessRank: who this process is in a world of processes, which something outside has started: a launcher's
// variables of the environment.
#pragma once

#include <dhp/core/error.hpp>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace dhp {

/// From the variables RANK, WORLD_SIZE, LOCAL_RANK (among the ranks of this machine; 0 where there is none),
/// DHP_RENDEZVOUS (a folder) and DHP_JOB (differs from start to start; not needed where the folder does).
struct ProcessRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string folder{};
  std::string job = "job";

  /// None where RANK and WORLD_SIZE are both unset. Throws where they make no sense.
  [[nodiscard]] static std::optional<ProcessRank> from_environment() {
    const char* const rank = std::getenv("RANK");
    const char* const size = std::getenv("WORLD_SIZE");
    if (rank == nullptr && size == nullptr) return std::nullopt;
    check(rank != nullptr && size != nullptr,
          "RANK and WORLD_SIZE belong together, but only one of them is set");
    ProcessRank me;
    me.rank = number("RANK", rank);
    me.size = number("WORLD_SIZE", size);
    check(me.size >= 1 && me.rank >= 0 && me.rank < me.size, "RANK is ", me.rank,
          " and WORLD_SIZE is ", me.size, "; ranks count from 0 to WORLD_SIZE - 1");
    if (const char* const local = std::getenv("LOCAL_RANK"))
      me.local_rank = number("LOCAL_RANK", local);
    const char* const folder = std::getenv("DHP_RENDEZVOUS");
    check(folder != nullptr || me.size == 1, "WORLD_SIZE is ", me.size,
          ", but DHP_RENDEZVOUS names no folder for the ranks to meet in");
    if (folder != nullptr) me.folder = folder;
    if (const char* const job = std::getenv("DHP_JOB")) me.job = job;
    return me;
  }

 private:
  static int number(const char* name, std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size(), name, " is \"", text,
          "\", not a whole number");
    return value;
  }
};

}  // namespace dhp
