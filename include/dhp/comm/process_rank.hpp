// ProcessRank: who this process is in a world of processes, which something outside has started: a launcher, by
// the variables that it sets, or a person, by variables or flags.
#pragma once

#include <dhp/comm/launcher.hpp>
#include <dhp/core/hash.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dhp {

/// What a program's user may say on its command line. It comes before what the environment says.
struct RankFlags {
  std::optional<int> rank{};            // --rank, together with
  std::optional<int> size{};            // --world-size
  std::optional<int> local_rank{};      // --local-rank
  std::optional<std::string> master{};  // --master: host, host:port or [address]:port
};

struct ProcessRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine; 0 where nothing says so
  int local_size = 0;  // how many those are; 0: not known
  std::string launcher{};
  std::string master{};  // host name or address of rank 0; empty: none is known
  int port = 0;          // where rank 0 listens; there is one wherever there is a master
  std::string folder{};  // to meet in instead, seen by all ranks; empty: none
  std::string job =
      "job";  // equal on all ranks of a start, and different from start to start where
              // the launcher tells them apart

  /// None where no launcher's variables are set: then the program starts its ranks itself, as threads. Throws
  /// where the variables make no sense, or where several ranks would not know where to meet.
  [[nodiscard]] static std::optional<ProcessRank> from_environment(
      const Environment& environment = Environment::of_process()) {
    return from_flags({}, environment);
  }
  /// The same, for what the flags leave open.
  [[nodiscard]] static std::optional<ProcessRank> from_flags(
      const RankFlags& flags, const Environment& environment = Environment::of_process()) {
    const auto says = flagged(flags, environment);
    if (!says) {
      check(!flags.master && !flags.local_rank, flags.master ? "--master" : "--local-rank",
            " is given, but nothing says which rank this process is; give --rank and "
            "--world-size, too, or start it by a launcher");
      return std::nullopt;
    }
    ProcessRank me;
    me.rank = says->rank;
    me.size = says->size;
    me.launcher = says->launcher;
    check(me.size >= 1 && me.rank >= 0 && me.rank < me.size, says->rank_name, " is ", me.rank,
          " and ", says->size_name, " is ", me.size, "; ranks count from 0 to ", says->size_name,
          " - 1");
    me.set_place(*says, flags, environment);
    me.job = environment.text("DHP_JOB");
    if (me.job.empty()) me.job = file_name(says->job);
    me.folder = environment.text("DHP_RENDEZVOUS");
    me.set_master(*says, flags, environment);
    check(me.size == 1 || !me.master.empty() || !me.folder.empty(), says->size_name, " is ",
          me.size, ", but nothing says where the ranks meet; set DHP_MASTER_ADDR to the host of ",
          "rank 0, or DHP_RENDEZVOUS to a folder that all of them see");
    return me;
  }

  /// A port for rank 0 where nothing names one: of the job, from 20000 to 29999, below those that systems hand out
  /// to whoever asks for any. Never `taken`.
  [[nodiscard]] static int port_of_job(std::string_view job, int taken = 0) {
    const int port = static_cast<int>(20000 + fnv1a(job) % 10000);
    if (port != taken) return port;
    return port == 29999 ? 20000 : port + 1;
  }

 private:
  static std::optional<LauncherSays> flagged(const RankFlags& flags,
                                             const Environment& environment) {
    check(flags.rank.has_value() == flags.size.has_value(),
          "--rank and --world-size belong together, but only one of them is given");
    if (!flags.rank) return believed(environment);
    return LauncherSays{"flags", "--rank", "--world-size", *flags.rank, *flags.size};
  }

  /// The launcher that is nearest to this process, where several have left their variables.
  static std::optional<LauncherSays> believed(const Environment& environment) {
    for (const auto read : {explicit_rank, torchrun_rank})
      if (auto says = read(environment)) return says;
    for (const auto read : {open_mpi_rank, mpich_rank, slurm_rank, kubeflow_rank, kubernetes_rank})
      if (auto says = read(environment)) {
        if (environment.has("RANK") && environment.has("WORLD_SIZE"))
          check_agree(*says, *plain_rank(environment));
        if (const auto mpich = mpich_rank(environment)) check_agree(*says, *mpich);
        check_size(*says, environment);
        return says;
      }
    auto says = plain_rank(environment);
    check(says || !environment.has("DHP_WORLD_SIZE"),
          "DHP_RANK and DHP_WORLD_SIZE belong together, but only one of them is set");
    if (says) check_size(*says, environment);
    return says;
  }
  static void check_agree(const LauncherSays& says, const LauncherSays& other) {
    check(says.rank == other.rank && says.size == other.size, says.rank_name, " and ",
          says.size_name, " say rank ", says.rank, " of ", says.size, ", but ", other.rank_name,
          " and ", other.size_name, " say rank ", other.rank, " of ", other.size,
          "; unset those that are left over, or set DHP_RANK and DHP_WORLD_SIZE to what is meant");
  }
  static void check_size(const LauncherSays& says, const Environment& environment) {
    const int size = environment.number("DHP_WORLD_SIZE").value_or(says.size);
    check(size == says.size, says.size_name, " is ", says.size, ", but DHP_WORLD_SIZE is ", size,
          "; unset DHP_WORLD_SIZE, or set DHP_RANK, too");
  }

  void set_place(const LauncherSays& says, const RankFlags& flags, const Environment& environment) {
    const auto set_rank = environment.number("DHP_LOCAL_RANK");
    const auto set_size = environment.number("DHP_LOCAL_WORLD_SIZE");
    local_rank = (flags.local_rank ? flags.local_rank
                  : set_rank       ? set_rank
                                   : says.local_rank)
                     .value_or(0);
    local_size = (set_size ? set_size : says.local_size).value_or(0);
    check(local_rank >= 0 && local_size >= 0 && local_size <= size &&
              (local_size == 0 || local_rank < local_size),
          "rank ", rank, " of ", size, " (", launcher, ") cannot be rank ", local_rank, " of ",
          local_size,
          " on its machine; set DHP_LOCAL_RANK and DHP_LOCAL_WORLD_SIZE to what is meant");
  }

  void set_master(const LauncherSays& says, const RankFlags& flags,
                  const Environment& environment) {
    if (flags.master) {
      const auto parsed = HostPort::parse("--master", *flags.master);
      master = parsed.host;
      port = parsed.port;
    } else {
      for (const char* prefix : {"DHP_", ""})
        if (master.empty()) master = host(environment, prefix);
      if (master.empty() && local_size == size) master = "127.0.0.1";
      if (master.empty()) master = says.master;
    }
    if (!master.empty() && port == 0) port = chosen_port(says, environment);
  }
  static std::string host(const Environment& environment, std::string_view prefix) {
    const auto name = concat(prefix, "MASTER_ADDR");
    const auto text = environment.text(name);
    const bool bare_ipv6 = !text.starts_with('[') && std::count(text.begin(), text.end(), ':') > 1;
    if (text.empty() || bare_ipv6) return text;
    const auto parsed = HostPort::parse(name, text);
    check(parsed.port == 0, name, " is \"", text, "\"; the port is to be in ", prefix,
          "MASTER_PORT");
    return parsed.host;
  }
  [[nodiscard]] int chosen_port(const LauncherSays& says, const Environment& environment) const {
    if (const auto text = environment.text("DHP_MASTER_PORT"); !text.empty())
      return HostPort::port_number("DHP_MASTER_PORT", text);
    int given = 0;
    if (const auto text = environment.text("MASTER_PORT"); !text.empty())
      given = HostPort::port_number("MASTER_PORT", text);
    // Then torchrun itself listens there.
    const bool of_torchrun = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (given != 0 && !of_torchrun) return given;
    return says.port ? *says.port : port_of_job(job, given);
  }

  /// A launcher's name of a job may hold anything; it becomes part of file names.
  static std::string file_name(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char letter) { return letter <= ' ' || letter == '/'; }, '_');
    return text;
  }
};

}  // namespace dhp
