// CheckpointSave: one save of a checkpoint. Every rank writes a shard and the shard's index; then rank 0 joins the
// indexes and makes the checkpoint visible. Ranks communicate only through the folder, so any thread may save.
#pragma once

#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/shard.hpp>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// Thrown on all ranks if a save fails on any rank. Earlier checkpoints are unchanged.
class SaveFailed : public Error {
 public:
  using Error::Error;
};
namespace detail {
/// Runs work() and returns the message of its exception, or an empty text.
[[nodiscard]] std::string problem_in(auto work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    return sentence_of(error);
  }
}
}  // namespace detail

/// The content of a checkpoint besides its tensors. Rank 0's record is saved.
struct RunRecord {
  nlohmann::ordered_json about = nlohmann::ordered_json::object();  ///< a later load returns it
  std::vector<std::pair<std::string, double>>
      measures{};  ///< results of an evaluation at this step
  std::map<std::string, std::string>
      files{};              ///< content of additional files such as the vocabulary, by file name
  std::size_t keep = 0;     ///< number of newest checkpoints to keep; 0: all
  std::string keep_best{};  ///< name of a measure, whose best checkpoint is also kept
  /// Called before the checkpoint becomes visible; throws Error if another run has taken over the folder. May be empty.
  std::function<void()> may_commit{};
  std::vector<std::string> replaced{};  ///< names of old checkpoints to remove after this save
};

namespace detail {
/// Throws Error if a record has measures, but not the one that decides which checkpoint is best.
inline void check_best_measure(const RunRecord& record) {
  std::string names;
  for (const auto& [name, value] : record.measures) {
    if (name == record.keep_best) return;
    names += (names.empty() ? "" : ", ") + name;
  }
  check(record.keep_best.empty() || names.empty(), "no measure is called ", record.keep_best,
        ", by which the best checkpoint is to be kept; choose one of ", names);
}

class CheckpointSave {
 public:
  /// path: the folder of the run, the same on all ranks. A relative path keeps its meaning if the program changes its
  /// working directory during the save.
  CheckpointSave(const std::string& path, std::int64_t step, int rank, int ranks)
      : folder_(std::filesystem::absolute(path).string()),
        step_(step),
        part_(folder_.path(CheckpointFolder::name_of(step) + ".part")),
        rank_(rank),
        ranks_(ranks) {}

  /// Makes the empty folder. Only rank 0 calls it, before any rank writes.
  void begin() {
    folder_.make();
    folder_.begin(step_);
  }
  /// Writes this rank's pieces; they are on disk when it returns.
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
  /// Joins the indexes and makes the checkpoint visible. Only rank 0 calls it, after all ranks have written.
  void commit(const RunRecord& record) {
    CheckpointIndex index{record.about, {}, {}};
    for (const auto& [name, value] : record.measures) index.about["run"]["measures"][name] = value;
    for (const auto& [name, text] : record.files) {
      const auto path = part_ + "/" + name;
      check(name.find('/') == name.npos && name != "index.json" && !is_there(path),
            "a checkpoint cannot hold the program's file ", name,
            " under this name; choose another one, without /");
      index.files[name] = checked(text);
      replace_file(path, text);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto path = index_of(rank);
      index.add(CheckpointIndex::parse(text_of(path), path, false));
      std::filesystem::remove(path);
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
