// Examination: what every check is given, and how what each rank knows comes to all of them. All ranks then judge the
// same figures, and come to the same findings.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/meet/wire.hpp>
#include <dhp/comm/rank_list.hpp>
#include <dhp/tensor/tensor.hpp>

#include "options.hpp"
#include "outliers.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace examples::doctor {

template <class Dev>
struct Examination {
  Dev& dev;
  dhp::Comm<Dev> world;
  const DoctorOptions& options;
  std::vector<std::string> hosts{};  ///< of each rank
  std::vector<std::string> kinds{};  ///< of each rank: ranks of one kind should be equally fast
  std::vector<std::string> notes{};  ///< of each rank: what makes its times vary; empty for most

  [[nodiscard]] int rank() const { return world.rank(); }
  [[nodiscard]] int size() const { return world.size(); }
  [[nodiscard]] const Limits& limits() const { return options.limits; }
  [[nodiscard]] bool fault(std::string_view name) const { return options.faults.has(name, rank()); }
  [[nodiscard]] std::string who(int rank) const {
    return dhp::concat("rank ", rank, " (host ", hosts[static_cast<std::size_t>(rank)], ")");
  }
  [[nodiscard]] std::string who(const std::set<int>& ranks) const {
    return ranks.size() == 1 ? who(*ranks.begin()) : dhp::rank_list(ranks);
  }
};

/// A figure of all ranks. Collective.
template <class Dev>
[[nodiscard]] Figure gather_figure(Examination<Dev>& exam, std::string name, std::string unit,
                                   double own) {
  return {std::move(name), std::move(unit), gather(exam.dev, exam.world, {own})};
}

/// Adds the problems that each rank has found with itself. Collective.
template <class Dev>
void gather_problems(Examination<Dev>& exam, const std::vector<Problem>& own, Finding& to) {
  std::string written;
  for (const auto& problem : own) {
    dhp::comm::append_number(written, static_cast<std::uint32_t>(problem.verdict));
    dhp::comm::append_field(written, problem.sentence);
  }
  const auto texts = gather_texts(exam.dev, exam.world, written);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    dhp::comm::FieldReader reader(texts[rank]);
    while (!reader.empty()) {
      const auto verdict = reader.number();
      const auto sentence = reader.field();
      if (!verdict || !sentence) break;
      to.problems.push_back({static_cast<Verdict>(*verdict), {static_cast<int>(rank)}, *sentence});
    }
  }
}

/// Adds a problem for each rank that is slower than the others of its kind by more than the limit. Figures of 0 or
/// less are not rates of anything.
template <class Dev>
void judge_rates(const Examination<Dev>& exam, const Figure& figure, const Limit& limit,
                 const std::string& way_out, Finding& to) {
  for (const auto& slow : slowdowns(figure.of_rank, exam.kinds)) {
    const auto verdict = above(slow.ratio, limit);
    if (verdict == Verdict::ok) continue;
    const int rank = static_cast<int>(slow.index);
    const auto& note = exam.notes[slow.index];
    to.problems.push_back({verdict,
                           {rank},
                           dhp::concat(exam.who(rank), ": ", figure.name, " has ",
                                       three_digits(figure.of_rank[slow.index]), " ", figure.unit,
                                       ", ", three_digits(slow.ratio), " times less than ",
                                       slow.compared == 1 ? "the only other rank of its kind"
                                                          : "the median of the others of its kind",
                                       " (", three_digits(slow.others), "); ",
                                       note.empty() ? "" : note + "; ", way_out)});
  }
}

}  // namespace examples::doctor
