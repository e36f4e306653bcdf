// The links check: every two ranks send messages there and back, many pairs at a time, each rank in one pair. A link is
// held against the median of the other links of its kind: those within a host, and those across hosts.
#pragma once

#include "examination.hpp"
#include "timing.hpp"
#include "tournament.hpp"

#include <chrono>
#include <map>
#include <thread>

namespace examples::doctor {

/// Seconds one way between two ranks.
struct Link {
  int first = 0;
  int second = 0;
  double seconds = 0;
};

/// Slow links, and ranks all of whose links are slow. who(rank): its name.
template <class Who>
[[nodiscard]] std::vector<Problem> judge_links(const std::vector<Link>& links,
                                               const std::vector<std::string>& hosts,
                                               const Limit& limit, double megabytes, Who who) {
  constexpr const char* within_host = "within a host";
  std::vector<double> rates;
  std::vector<std::string> kinds;
  std::map<int, int> links_of, slow_links_of;
  for (const auto& link : links) {
    rates.push_back(megabytes / 1e3 / link.seconds);
    const bool one_host =
        hosts[static_cast<std::size_t>(link.first)] == hosts[static_cast<std::size_t>(link.second)];
    kinds.push_back(one_host ? within_host : "across hosts");
    ++links_of[link.first];
    ++links_of[link.second];
  }
  std::vector<Slowdown> slow;
  for (const auto& link : slowdowns(rates, kinds)) {
    if (above(link.ratio, limit) == Verdict::ok) continue;
    slow.push_back(link);
    ++slow_links_of[links[link.index].first];
    ++slow_links_of[links[link.index].second];
  }
  const auto all_slow = [&](int rank) {
    return links_of[rank] > 1 && slow_links_of[rank] == links_of[rank];
  };
  std::vector<Problem> problems;
  std::map<int, Slowdown> mildest;  // of the ranks whose links are all slow
  for (const auto& link : slow) {
    const auto& [first, second, seconds] = links[link.index];
    bool of_rank = false;
    for (const int rank : {first, second}) {
      if (!all_slow(rank)) continue;
      of_rank = true;
      const auto [entry, added] = mildest.emplace(rank, link);
      if (!added && link.ratio < entry->second.ratio) entry->second = link;
    }
    if (of_rank) continue;
    const bool within = kinds[link.index] == within_host;
    problems.push_back(
        {above(link.ratio, limit),
         {first, second},
         dhp::concat("the link between ", who(first), " and ", who(second), " has ",
                     three_digits(rates[link.index]), " GB/s, ", three_digits(link.ratio),
                     " times less than the median of the other links ", kinds[link.index], " (",
                     three_digits(link.others),
                     within ? "); what else is at work there?"
                            : "); look at the cables and switches between them")});
  }
  for (const auto& [rank, link] : mildest)
    problems.push_back(
        {above(link.ratio, limit),
         {rank},
         dhp::concat("all links of ", who(rank), " are slow, at least ", three_digits(link.ratio),
                     " times slower than the median of the others ", kinds[link.index], " (",
                     three_digits(link.others),
                     " GB/s); look at its network card, cable and port")});
  return problems;
}

template <class Dev>
[[nodiscard]] Finding check_links(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("links", "one rank has nobody to talk to");
  Finding finding;
  finding.check = "links";
  auto& dev = exam.dev;
  const std::int64_t bytes = exam.options.quick ? 1 << 18 : 1 << 22;
  constexpr int messages = 16;
  constexpr int most_rounds = 64;  // each link of a rank is as likely to be the slow one
  const int rounds = std::min(rounds_of(exam.size()), most_rounds);
  constexpr std::chrono::milliseconds held_up_for{100};
  const int held_up = exam.options.faults.rank_of("slow-link");
  auto message = dhp::Tensor<Dev>::zeros(dev, dhp::DType::u8, dhp::Shape{bytes});
  auto answer = dhp::Tensor<Dev>::zeros(dev, dhp::DType::u8, dhp::Shape{bytes});
  std::vector<double> own;  // seconds in each round; not_known where the partner measures
  for (int round = 0; round < rounds; ++round) {
    const int partner = partner_of(exam.rank(), round, exam.size());
    exam.world.barrier();
    double least = not_known;
    // The least time of several: what else the hosts do adds to some of them, a slow link to all.
    for (int turn = -1; turn < messages && partner >= 0; ++turn) {
      const Stopwatch watch;
      if (exam.rank() < partner) {
        exam.world.send(dev, message.share(), partner);
        exam.world.recv(dev, answer.mut(), partner);
        dev.synchronize();
        const double s = watch.seconds() / 2;
        if (turn >= 0 && !(s >= least)) least = s;
      } else {
        exam.world.recv(dev, answer.mut(), partner);
        dev.synchronize();
        const int next = (held_up + 1) % exam.size();
        const bool slow = (partner == held_up && exam.rank() == next) ||
                          (exam.rank() == held_up && partner == next);
        if (held_up >= 0 && slow) std::this_thread::sleep_for(held_up_for);
        exam.world.send(dev, message.share(), partner);
      }
    }
    own.push_back(least);
  }
  const auto all = gather(dev, exam.world, own);
  std::vector<Link> links;
  for (int rank = 0; rank < exam.size(); ++rank)
    for (int round = 0; round < rounds; ++round) {
      const double s = all[static_cast<std::size_t>(rank * rounds + round)];
      if (!std::isnan(s)) links.push_back({rank, partner_of(rank, round, exam.size()), s});
    }
  const double megabytes = static_cast<double>(bytes) / 1e6;
  std::vector<double> slowest(static_cast<std::size_t>(exam.size()), not_known);
  finding.pair_figure = "GB/s";
  for (const auto& [first, second, s] : links) {
    const double rate = megabytes / 1e3 / s;
    finding.pairs.push_back({first, second, rate});
    for (const int rank : {first, second}) {
      auto& least = slowest[static_cast<std::size_t>(rank)];
      if (!(rate >= least)) least = rate;
    }
  }
  finding.figures.push_back({"slowest link", "GB/s", slowest});
  finding.problems = judge_links(links, exam.hosts, exam.limits().link_slowdown, megabytes,
                                 [&](int rank) { return exam.who(rank); });
  finding.summary = dhp::concat(links.size(), links.size() == 1 ? " pair" : " pairs", " of ranks, ",
                                bytes >> 10, " KiB there and back");
  return finding;
}

}  // namespace examples::doctor
