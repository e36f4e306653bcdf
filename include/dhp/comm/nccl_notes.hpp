// NcclNotes: what a group of NCCL writes into its rank's ledger. Whoever looks at the ledgers of all ranks sees from
// that which rank has not come to a call that the others' devices wait in.
#pragma once

#include <dhp/comm/ledger.hpp>
#include <dhp/comm/nccl_handle.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

class NcclNotes {
 public:
  NcclNotes() = default;  ///< of no ledger
  /// members: ranks of the world in the order of the group; me: this one's. The same name on all of them, and no
  /// other group with it. ledger: null where nothing is to be written.
  NcclNotes(std::shared_ptr<Ledger> ledger, std::string name, std::vector<int> members, int me)
      : ledger_(std::move(ledger)),
        name_(std::move(name)),
        members_(std::make_shared<const std::vector<int>>(std::move(members))),
        me_(me) {}

  /// Those of a part of this group, all of whose members split it at the same time.
  [[nodiscard]] NcclNotes of_part(std::vector<int> members) {
    auto name = concat(name_, ".", ++parts_, "@", members.front());
    return {ledger_, std::move(name), std::move(members), me_};
  }

  /// Until what is returned goes the call is under way.
  [[nodiscard]] std::optional<Ledger::Call> note(const NcclOperation& operation) {
    if (!ledger_) return {};
    LedgerEntry entry;
    entry.operation = operation.name;
    entry.what = operation.what();
    if (operation.count > 0)
      entry.bytes = operation.count * static_cast<std::int64_t>(size_of(operation.dtype));
    entry.where = operation.where;
    entry.group = members_;
    entry.on_device = true;
    auto series = name_;
    if (operation.peer < 0) {
      for (const int rank : *members_)
        if (rank != me_) entry.waits_for.push_back(rank);
    } else {
      const int peer = members_->at(static_cast<std::size_t>(operation.peer));
      const bool sends = entry.operation == "send";  // which waits for nobody, as far as is known
      if (!sends) entry.waits_for.push_back(peer);
      entry.what =
          concat("message of ", operation.count, " ", operation.dtype, operation.more_text());
      append_text(series, concat(":", sends ? me_ : peer, ">", sends ? peer : me_));
    }
    entry.key = concat(series, "#", ++calls_[series]);
    return std::optional<Ledger::Call>(std::in_place, *ledger_, std::move(entry));
  }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::string name_;
  std::shared_ptr<const std::vector<int>> members_;
  int me_ = 0;
  std::uint64_t parts_ = 0;
  std::map<std::string, std::uint64_t> calls_;  // by their series
};

}  // namespace dhp
