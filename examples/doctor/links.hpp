// The links check: pairs of ranks exchange messages, many pairs at a time, each rank with at most 64 others. A link is
// compared with the other links of its kind: within a host, or across hosts.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include "compute.hpp"

#include <chrono>
#include <map>
#include <set>
#include <thread>

namespace examples::doctor {

/// Returns the partner of a rank in a round of a round-robin tournament, which has as many rounds as ranks; -1: the
/// rank pauses. The sum of the two ranks of a pair, modulo the number of ranks, is the round.
[[nodiscard]] constexpr int partner_of(int rank, int round, int ranks) {
  const int partner = (round - rank + ranks) % ranks;
  return partner == rank ? -1 : partner;
}

/// Judges the links of each kind. If all links of a rank are slow, they are reported as one problem of this rank.
template <class Dev>
void judge_links(const Examination<Dev>& exam, Finding& finding) {
  constexpr Limit limit{2, 5};
  for (const bool within : {true, false}) {
    const std::string kind = within ? "within a host" : "across hosts";
    std::vector<Link> links;
    std::vector<double> rates;
    for (const auto& link : finding.links)
      if ((exam.host(link.first) == exam.host(link.second)) == within) {
        links.push_back(link);
        rates.push_back(link.gb_s);
      }
    if (links.empty()) continue;
    const auto add = [&](double gb_s, double others, const std::set<int>& ranks,
                         const std::string& text, const char* way_out) {
      const auto verdict = exam.judge(others / gb_s, limit);
      if (verdict != Verdict::ok)
        finding.problems.push_back(
            {verdict, ranks,
             dhp::concat(text, " has ", three_digits(gb_s), " GB/s, ", three_digits(others / gb_s),
                         " times less than the median of the other links ", kind, " (",
                         three_digits(others), "); ", way_out)});
      return verdict != Verdict::ok;
    };
    Figure slowest{"slowest link " + kind, "GB/s", {}};
    std::map<int, double> fastest;  // fastest link of each rank with slow links only
    for (int rank = 0; rank < static_cast<int>(exam.hosts.size()); ++rank) {
      double least = not_known, most = not_known;
      std::vector<double> others;
      for (const auto& [first, second, gb_s] : links) {
        if (rank != first && rank != second) others.push_back(gb_s);
        else least = std::fmin(least, gb_s), most = std::fmax(most, gb_s);  // skips NaN
      }
      slowest.values.push_back(least);
      if (add(most, median(others), {rank}, "the fastest link of " + exam.who(rank),
              "look at its network card, cable and port"))
        fastest[rank] = most;
    }
    finding.figures.push_back(std::move(slowest));
    for (const auto& [index, others, ratio] : slowdowns(rates, std::vector(rates.size(), kind))) {
      const auto& [first, second, gb_s] = links[index];
      const auto explained = [&, slow = gb_s](int rank) {
        return fastest.contains(rank) && exam.judge(fastest[rank] / slow, limit) == Verdict::ok;
      };
      if (!explained(first) && !explained(second))
        add(gb_s, others, {first, second},
            "the link between " + exam.who(first) + " and " + exam.who(second),
            within ? "is another program at work there?"
                   : "look at the cables and switches between them");
    }
  }
}

/// Returns the shortest one-way time of several messages in seconds: other work delays some messages, a slow link
/// delays all. Both ranks call it; the higher rank returns not_known. delayed: the link is deliberately slow.
template <class Dev>
[[nodiscard]] double message_s(Examination<Dev>& exam, dhp::Tensor<Dev>& message,
                               dhp::Tensor<Dev>& answer, int partner, bool delayed) {
  const int messages = exam.options.quick ? 48 : 16;  // quick ones are short
  auto& dev = exam.dev;
  double least = not_known;
  for (int turn = -1; turn < messages; ++turn) {  // turn -1 warms up
    const double start_s = now_s();
    if (exam.rank() < partner) {
      exam.world.send(dev, message.share(), partner);
      exam.world.recv(dev, answer.mut(), partner);
      dev.synchronize();
      if (turn >= 0) least = std::fmin(least, (now_s() - start_s) / 2);  // skips NaN
    } else {
      exam.world.recv(dev, answer.mut(), partner);
      dev.synchronize();
      if (delayed) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      exam.world.send(dev, message.share(), partner);
    }
  }
  return least;
}

template <class Dev>
[[nodiscard]] Finding check_links(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("one rank has no partner");
  constexpr int max_rounds = 64;
  Finding finding;
  auto& dev = exam.dev;
  const int size = exam.size(), rounds = std::min(size, max_rounds);
  const std::int64_t bytes = exam.options.quick ? 1 << 18 : 1 << 22;
  const int faulty = exam.options.faulty_rank;
  const bool slow_link = exam.options.fault == "slow-link";  // to the next rank
  auto message = dhp::Tensor<Dev>::zeros(dev, dhp::DType::u8, dhp::Shape{bytes});
  auto answer = dhp::Tensor<Dev>::zeros(dev, dhp::DType::u8, dhp::Shape{bytes});
  std::vector<double> own;  // seconds of this rank's rounds
  for (int round = 0; round < rounds; ++round) {
    const int partner = partner_of(exam.rank(), round, size);
    const std::set<int> ends{faulty, (faulty + 1) % size};
    const bool delayed = slow_link && ends == std::set<int>{exam.rank(), partner};
    exam.world.barrier();
    own.push_back(partner < 0 ? not_known : message_s(exam, message, answer, partner, delayed));
  }
  const auto all = gather(dev, exam.world, own);
  for (int rank = 0; rank < size; ++rank)
    for (int round = 0; round < rounds; ++round)
      if (const double s = all[static_cast<std::size_t>(rank * rounds + round)]; !std::isnan(s))
        finding.links.push_back(
            {rank, partner_of(rank, round, size), 1e-9 * static_cast<double>(bytes) / s});
  judge_links(exam, finding);
  finding.notes.push_back(dhp::concat(finding.links.size(), " of ", size * (size - 1) / 2,
                                      " pairs of ranks, ", bytes >> 10, " KiB back and forth"));
  return finding;
}

}  // namespace examples::doctor
