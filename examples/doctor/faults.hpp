// Faults: what --inject makes wrong on purpose, so that tests can see each check fail. A check asks for its own.
#pragma once

#include <dhp/core/error.hpp>

#include <array>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

namespace examples::doctor {

struct FaultName {
  const char* name;
  const char* check;  ///< that finds it
};

inline constexpr std::array fault_names{
    FaultName{"other-version", "versions"},    // a rank says that its dhp is another one
    FaultName{"skewed-clock", "clock"},        // a rank's clock is 1000 s ahead
    FaultName{"slow-copy", "copies"},          // a rank copies slowly
    FaultName{"slow-gemm", "gemm"},            // a rank multiplies slowly
    FaultName{"wrong-gemm", "gemm"},           // one element of a rank's product is wrong
    FaultName{"sick-gpu", "gpu"},              // NVML says that a rank's GPU is in a bad way
    FaultName{"wrong-sum", "collectives"},     // a rank brings one wrong element to a sum
    FaultName{"missing-rank", "collectives"},  // a rank sleeps beyond the time limit
    FaultName{"slow-link", "links"},        // messages between a rank and the next one are held up
    FaultName{"slow-storage", "storage"},   // a rank reads slowly
    FaultName{"wrong-storage", "storage"},  // one byte of a rank's file is changed
};

class Faults {
 public:
  /// "NAME=RANK"; throws where there is no such fault.
  void add(std::string_view text) {
    const auto equals = text.find('=');
    const auto name = text.substr(0, equals);
    bool known = false;
    std::string all;
    for (const auto& fault : fault_names) {
      known = known || name == fault.name;
      dhp::append_text(all, dhp::concat(all.empty() ? "" : ", ", fault.name));
    }
    dhp::check(known, "there is no fault \"", name, "\"; choose one of ", all);
    int rank = -1;
    const auto digits = equals == text.npos ? std::string_view() : text.substr(equals + 1);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    dhp::check(end.ec == std::errc() && end.ptr == digits.data() + digits.size() && rank >= 0,
               "--inject ", text, " does not name a rank; write ", name, "=0");
    ranks_[std::string(name)] = rank;
  }
  [[nodiscard]] bool has(std::string_view name, int rank) const { return rank_of(name) == rank; }
  /// -1 where there is no such fault.
  [[nodiscard]] int rank_of(std::string_view name) const {
    const auto found = ranks_.find(name);
    return found == ranks_.end() ? -1 : found->second;
  }
  /// The greatest rank that has one; -1 where there is none.
  [[nodiscard]] int last_rank() const {
    int last = -1;
    for (const auto& [name, rank] : ranks_) last = rank > last ? rank : last;
    return last;
  }

 private:
  std::map<std::string, int, std::less<>> ranks_;
};

}  // namespace examples::doctor
