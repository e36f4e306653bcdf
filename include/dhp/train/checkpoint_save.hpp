// One save of a checkpoint. Every rank writes a shard and the index of it; when all are there, rank 0 joins the
// indexes and makes the checkpoint visible. Ranks meet only in the folder, so any thread may do this.
#pragma once

#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/shard.hpp>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// A checkpoint's content besides tensors; that of rank 0 is used.
struct RunRecord {
  nlohmann::ordered_json about = nlohmann::ordered_json::object();  ///< a loaded run gets it back
  std::vector<std::pair<std::string, double>>
      measures{};  ///< what an evaluation at this step has measured
  std::map<std::string, std::string>
      files{};              ///< content of files by their names, such as the vocabulary
  std::size_t keep = 0;     ///< how many checkpoints stay, the newest ones; 0: all
  std::string keep_best{};  ///< a name in measures: its best value is kept, too
  /// Throws where this run may not make a checkpoint visible any more, since another one has taken over; null: it may.
  std::function<void()> may_commit{};
  std::vector<std::string> replaced{};  ///< names of checkpoints that go when this one is there
};

namespace detail {
class CheckpointSave {
 public:
  /// path: the folder of the run, the same for all ranks.
  CheckpointSave(const std::string& path, std::int64_t step, int rank, int ranks)
      : folder_(path),
        step_(step),
        part_(folder_.path(CheckpointFolder::name_of(step) + ".part")),
        rank_(rank),
        ranks_(ranks) {}

  /// Rank 0 calls it before any rank writes.
  void begin() {
    folder_.make();
    (void)folder_.begin(step_);
  }
  /// The pieces that this rank has to write; they are on the disk when this returns.
  template <class Dev>
  void write(Dev& dev, const std::vector<HeldPiece<Dev>>& pieces) {
    const auto index = write_shard(dev, part_, name_of(rank_) + ".safetensors", pieces);
    replace_file(index_of(rank_), index.to_text());
  }
  [[nodiscard]] bool all_written() const {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!std::filesystem::exists(index_of(rank))) return false;
    return true;
  }
  /// Rank 0 calls it when every rank has written.
  void commit(const RunRecord& record) {
    CheckpointIndex index{record.about, {}, {}};
    for (const auto& [name, value] : record.measures) index.about["run"]["measures"][name] = value;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto path = index_of(rank);
      index.add(CheckpointIndex::parse(text_of(path), path, false));
      std::filesystem::remove(path);
    }
    for (const auto& [name, text] : record.files) {
      index.files[name] = checked(text);
      replace_file(part_ + "/" + name, text);
    }
    replace_file(part_ + "/index.json", index.to_text());
    if (record.may_commit) record.may_commit();
    folder_.commit(step_);
    for (const auto& name : record.replaced)
      if (name != CheckpointFolder::name_of(step_)) folder_.remove(name);
    if (record.keep > 0) folder_.keep(record.keep, best_checkpoint(folder_, record.keep_best));
  }

 private:
  [[nodiscard]] static std::string name_of(int rank) {
    return "shard-" + digits_of(static_cast<std::uint64_t>(rank), 5, 10);
  }
  [[nodiscard]] std::string index_of(int rank) const {
    return part_ + "/" + name_of(rank) + ".json";
  }

  CheckpointFolder folder_;
  std::int64_t step_;
  std::string part_;
  int rank_, ranks_;
};
}  // namespace detail

}  // namespace dhp
