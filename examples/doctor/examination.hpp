// Examination: the input of every check. The ranks gather their numbers and texts and judge the same data, so all come
// to the same findings.
#pragma once

#include <dhp/comm/gather.hpp>

#include "options.hpp"
#include "outliers.hpp"

#include <string>
#include <vector>

namespace examples::doctor {

template <class Dev>
struct Examination {
  Dev& dev;
  dhp::Comm<Dev> world;
  const DoctorOptions& options;
  std::vector<std::string> hosts{};  ///< host names by rank
  std::vector<std::string> kinds{};  ///< kinds by rank; ranks of one kind should be equally fast

  [[nodiscard]] int rank() const { return world.rank(); }
  [[nodiscard]] int size() const { return world.size(); }
  /// Returns whether this rank makes this fault deliberately (--inject).
  [[nodiscard]] bool fault(std::string_view name) const {
    return options.fault == name && options.faulty_rank == rank();
  }
  [[nodiscard]] const std::string& host(int rank) const {
    return hosts[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::string who(int rank) const {
    return dhp::concat("rank ", rank, " (host ", host(rank), ")");
  }
  [[nodiscard]] Verdict judge(double ratio, const Limit& limit) const {
    return limit.judge(ratio / options.tolerance);
  }
};

/// Adds a problem for each rank that is much slower than other ranks of its kind.
template <class Dev>
void judge_rates(const Examination<Dev>& exam, const Figure& figure, const Limit& limit,
                 const std::string& way_out, Finding& to) {
  for (const auto& [index, others, ratio] : slowdowns(figure.values, exam.kinds)) {
    const auto verdict = exam.judge(ratio, limit);
    if (verdict == Verdict::ok) continue;
    const int rank = static_cast<int>(index);
    to.problems.push_back(
        {verdict,
         {rank},
         dhp::concat(exam.who(rank), ": ", figure.name, " has ", three_digits(figure.values[index]),
                     " ", figure.unit, ", ", three_digits(ratio),
                     " times less than the median of the others of its kind (",
                     three_digits(others), "); ", way_out)});
  }
}

}  // namespace examples::doctor
