// The versions check: all ranks run the same program on the same libraries and the same kind of host.
#pragma once

#include "device_facts.hpp"
#include "differences.hpp"
#include "examination.hpp"
#include "facts.hpp"

namespace examples::doctor {

template <class Dev>
[[nodiscard]] Finding check_versions(Examination<Dev>& exam) {
  Finding finding;
  finding.check = "versions";
  auto facts = host_facts();
  for (auto& fact : device_facts(exam.dev)) facts.push_back(std::move(fact));
  if (exam.fault("other-version")) facts.front().value = "0.0.0";

  std::string written;
  for (const auto& fact : facts) {
    dhp::comm::append_number(written, static_cast<std::uint32_t>(fact.if_different));
    dhp::comm::append_field(written, fact.name);
    dhp::comm::append_field(written, fact.value);
  }
  std::vector<std::vector<Fact>> of_rank;
  for (const auto& text : gather_texts(exam.dev, exam.world, written)) {
    of_rank.emplace_back();
    dhp::comm::FieldReader reader(text);
    while (!reader.empty()) {
      const auto verdict = reader.number();
      auto name = reader.field();
      auto value = reader.field();
      if (!verdict || !name || !value) break;
      of_rank.back().push_back(
          {std::move(*name), std::move(*value), static_cast<Verdict>(*verdict)});
    }
  }
  for (const auto& [name, value, verdict] : of_rank.front())
    dhp::append_text(finding.summary,
                     dhp::concat(finding.summary.empty() ? "" : ", ", name, " ", value));
  finding.problems = differences(of_rank, exam.hosts);
  auto own = host_library_problems();
  for (auto& problem : device_library_problems(exam.dev)) own.push_back(std::move(problem));
  gather_problems(exam, own, finding);
  return finding;
}

}  // namespace examples::doctor
