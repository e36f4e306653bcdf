// ProcessRank is this process's place in a job, from the variables of a launcher or user, or from program options.
#pragma once

#include <dhp/comm/rendezvous/launcher.hpp>
#include <dhp/core/hash.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace dhp {

/// Values from the program's user, such as command-line options. They take precedence over the environment.
struct RankOverrides {
  std::optional<int> rank{};  ///< given together with the size
  std::optional<int> size{}, local_rank{};
  std::optional<std::string> master{};  ///< host, host:port or [address]:port
  bool needs_master = true;             ///< false if the ranks do not meet at rank 0
  /// The names of these values in messages.
  std::string rank_name = "the given rank";
  std::string size_name = "the given world size";
  std::string local_rank_name = "the given local rank";
  std::string master_name = "the given address of rank 0";
};

struct ProcessRank {
  int rank = 0, size = 1;
  int local_rank = 0;  ///< rank among this machine's ranks; 0 if unknown
  int local_size = 0;  ///< number of ranks on this machine; 0 if unknown
  std::string launcher{};
  std::string master{};  ///< host name or address of rank 0; empty: unknown
  int port = 0;          ///< port where rank 0 listens; set whenever there is a master
  /// Name of the job, equal on all ranks of a start. Two starts have different names if the launcher tells them apart.
  /// If the launcher names no job, the name includes the port.
  std::string job = "job";
  std::string variables{};  ///< names of the set launcher variables, for detail::or_unset()

  /// Returns nullopt if no launcher variables are set; the program then starts its ranks itself, as threads. Throws
  /// Error if the variables are inconsistent, or if several ranks have no address to meet at.
  [[nodiscard]] static std::optional<ProcessRank> from_environment(
      const RankOverrides& given = {},
      const detail::Environment& environment = detail::Environment::of_process()) {
    const auto variables = given.rank ? std::string() : detail::rank_variables(environment);
    try {
      auto me = read(given, environment);
      if (me) me->variables = variables;
      return me;
    } catch (const Error& error) {
      throw Error(detail::or_unset(error.sentence(), variables));
    }
  }

  /// Returns a port for rank 0, derived from the job: 20000 to 29999, below the ephemeral range, and never `taken`.
  [[nodiscard]] static int port_of_job(std::string_view job, int taken = 0) {
    const int port = static_cast<int>(20000 + detail::fnv1a(job) % 10000);
    if (port != taken) return port;
    return port == 29999 ? 20000 : port + 1;
  }

 private:
  using Info = detail::LauncherInfo;

  static std::optional<ProcessRank> read(const RankOverrides& given,
                                         const detail::Environment& environment) {
    const auto info = choose(given, environment);
    if (!info) {
      check(!given.master && !given.local_rank,
            given.master ? given.master_name : given.local_rank_name,
            " needs the rank of this process; give ", given.rank_name, " and ", given.size_name,
            ", too, or start it by a launcher");
      return std::nullopt;
    }
    ProcessRank me;
    me.rank = info->rank;
    me.size = info->size;
    me.launcher = info->launcher;
    check(me.size >= 1 && me.rank >= 0 && me.rank < me.size, info->rank_name, " is ", me.rank,
          " and ", info->size_name, " is ", me.size, "; ranks count from 0 to ", info->size_name,
          " - 1");
    me.set_place(*info, given, environment);
    auto name = environment.text("DHP_JOB");
    if (name.empty()) name = file_name(info->job);
    if (!name.empty()) me.job = name;
    me.set_master(*info, given, environment);
    if (name.empty() && given.needs_master && me.port != 0) me.job += concat("-", me.port);
    check(me.size == 1 || !me.master.empty() || !given.needs_master, info->size_name, " is ",
          me.size,
          ", but nothing says where the ranks meet; set DHP_MASTER_ADDR to the host of rank 0");
    return me;
  }

  static std::optional<Info> choose(const RankOverrides& given,
                                    const detail::Environment& environment) {
    const auto both = concat(given.rank_name, " and ", given.size_name);
    check(given.rank.has_value() == given.size.has_value(), both,
          " belong together, but only one of them is given");
    if (!given.rank) return from_launcher(environment);
    return Info{both, given.rank_name, given.size_name, *given.rank, *given.size};
  }

  /// Returns the innermost of the launchers that have set variables.
  static std::optional<Info> from_launcher(const detail::Environment& environment) {
    if (environment.has("DHP_RANK"))
      return detail::read_launcher(environment, "DHP_RANK and DHP_WORLD_SIZE", "DHP_RANK",
                                   "DHP_WORLD_SIZE");
    if (auto info = detail::torchrun_rank(environment)) return info;
    for (const auto read : {detail::open_mpi_rank, detail::mpich_rank, detail::slurm_rank,
                            detail::kubeflow_rank, detail::kubernetes_rank})
      if (auto info = read(environment)) {
        if (environment.has("RANK") && environment.has("WORLD_SIZE"))
          check_agree(*info, *detail::plain_rank(environment));
        if (const auto mpich = detail::mpich_rank(environment)) check_agree(*info, *mpich);
        check_size(*info, environment);
        return info;
      }
    auto info = detail::plain_rank(environment);
    check(info || !environment.has("DHP_WORLD_SIZE"),
          "DHP_RANK and DHP_WORLD_SIZE belong together, but only one of them is set");
    if (info) check_size(*info, environment);
    return info;
  }
  static void check_agree(const Info& info, const Info& other) {
    check(info.rank == other.rank && info.size == other.size, info.rank_name, " and ",
          info.size_name, " say rank ", info.rank, " of ", info.size, ", but ", other.rank_name,
          " and ", other.size_name, " say rank ", other.rank, " of ", other.size,
          "; set DHP_RANK and DHP_WORLD_SIZE to the right values");
  }
  static void check_size(const Info& info, const detail::Environment& environment) {
    const int size = environment.number("DHP_WORLD_SIZE").value_or(info.size);
    check(size == info.size, info.size_name, " is ", info.size, ", but DHP_WORLD_SIZE is ", size,
          "; unset DHP_WORLD_SIZE, or set DHP_RANK, too");
  }

  void set_place(const Info& info, const RankOverrides& given,
                 const detail::Environment& environment) {
    const auto set_rank = environment.number("DHP_LOCAL_RANK");
    const auto set_size = environment.number("DHP_LOCAL_WORLD_SIZE");
    const auto& chosen = given.local_rank ? given.local_rank
                         : set_rank       ? set_rank
                                          : info.local_rank;
    local_rank = chosen.value_or(0);
    local_size = (set_size ? set_size : info.local_size).value_or(0);
    check(local_rank >= 0 && local_size >= 0 && local_size <= size &&
              (local_size == 0 || local_rank < local_size),
          "rank ", rank, " of ", size, " (", launcher, ") cannot be rank ", local_rank, " of ",
          local_size,
          " on its machine; set DHP_LOCAL_RANK and DHP_LOCAL_WORLD_SIZE to the right values");
  }

  void set_master(const Info& info, const RankOverrides& given,
                  const detail::Environment& environment) {
    if (given.master) {
      const auto parsed = detail::parse_host_port(given.master_name, *given.master);
      master = parsed.host;
      port = parsed.port;
    } else {
      for (const char* prefix : {"DHP_", ""})
        if (master.empty()) master = host(environment, prefix);
      if (master.empty() && local_size == size) master = "127.0.0.1";
      if (master.empty()) master = info.master;
    }
    if (!master.empty() && port == 0) port = choose_port(info, environment);
  }
  static std::string host(const detail::Environment& environment, std::string_view prefix) {
    const auto name = concat(prefix, "MASTER_ADDR");
    const auto text = environment.text(name);
    const bool bare_ipv6 = !text.starts_with('[') && std::count(text.begin(), text.end(), ':') > 1;
    if (text.empty() || bare_ipv6) return text;
    const auto parsed = detail::parse_host_port(name, text);
    check(parsed.port == 0, name, " is \"", text, "\"; the port is to be in ", prefix,
          "MASTER_PORT");
    return parsed.host;
  }
  [[nodiscard]] int choose_port(const Info& info, const detail::Environment& environment) const {
    if (const auto text = environment.text("DHP_MASTER_PORT"); !text.empty())
      return detail::parse_port("DHP_MASTER_PORT", text);
    int port_given = 0;
    if (const auto text = environment.text("MASTER_PORT"); !text.empty())
      port_given = detail::parse_port("MASTER_PORT", text);
    // With an agent store, torchrun itself listens at MASTER_PORT.
    const bool of_torchrun = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (port_given != 0 && !of_torchrun) return port_given;
    return info.port ? *info.port : port_of_job(job, port_given);
  }

  /// Replaces characters that do not fit into file names: a launcher's job name may contain anything.
  static std::string file_name(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char letter) { return letter <= ' ' || letter == '/'; }, '_');
    return text;
  }
};

}  // namespace dhp
