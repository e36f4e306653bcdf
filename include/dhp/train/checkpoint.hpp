// Checkpoints: the state of a run, independent of its layout. Each rank writes its pieces to a shard; ranks with equal
// copies share the writing. Each rank reads only what it needs, also under another layout. Needs nlohmann/json.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/gather.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/poll_until.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/train/checkpoint_save.hpp>
#include <dhp/train/load_weights.hpp>
#include <dhp/train/trainer.hpp>

#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct LoadedCheckpoint {
  RunState state{};
  std::string from;  ///< the folder or file that was loaded
  /// Messages for people: damaged checkpoints that were skipped, tensors that no rank has read, and another seed,
  /// other settings of the optimizer or other data than the saved run's.
  std::vector<std::string> remarks{};
  nlohmann::ordered_json about = nlohmann::ordered_json::object();  ///< the saved RunRecord::about
};

template <class Dev>
class Checkpoint {
 public:
  /// Keeps references to mesh, store, optimizer and replicas, which must outlive it. data: describes the data, as
  /// StepSource::in_common() does; empty if they are not known.
  Checkpoint(Mesh<Dev>& mesh, ParameterStore<Dev>& store, Optimizer<Dev>& optimizer,
             Replicas<Dev>* replicas = nullptr, std::string data = {})
      : mesh_(mesh),
        store_(store),
        optimizer_(optimizer),
        replicas_(replicas),
        data_(std::move(data)) {
    detail::check_has_replicas(store, replicas);
  }

  /// Makes the folder on rank 0 before training. loaded: the path that this run was loaded from, or empty. Throws Error
  /// if the folder is not writable, or if it has checkpoints of another run and `overwrite` is false. Returns the names
  /// of the checkpoints that this run's first save replaces.
  [[nodiscard]] std::vector<std::string> prepare(const std::string& path, const std::string& loaded,
                                                 bool overwrite) const {
    if (rank() != 0) return {};
    const CheckpointFolder folder(path);
    folder.make();
    auto names = folder.names();
    std::error_code error;
    const auto from =
        std::filesystem::canonical(loaded, error);  // without links and without a slash at its end
    const bool is_one =
        std::find(names.begin(), names.end(), from.filename().string()) != names.end();
    const bool same =
        !from.empty() && (std::filesystem::equivalent(from, path, error) ||
                          (is_one && std::filesystem::equivalent(from / "..", path, error)));
    if (same) {  // this run replaces the checkpoints after the loaded step
      const auto name = from.filename().string();
      // A name with more digits belongs to a later step.
      const auto order = [](const std::string& of) { return std::pair(of.size(), of); };
      std::erase_if(names, [&](const auto& other) { return order(other) <= order(name); });
      return names;
    }
    const bool old = detail::is_there(path + "/state.json");
    check(
        overwrite || (names.empty() && !old), path, " has checkpoints of another run (",
        old             ? "state.json"
        : names.empty() ? ""
                        : names.front(),
        "): go on from them with --load ", path,
        ", choose another directory, or allow to --overwrite them (in your own program: "
        "TrainingRun::resume, or files().prepare(DIRECTORY, true) if the run keeps a second one)");
    return names;
  }

  /// Loads this rank's pieces. Collective over the mesh. path: a run's folder (its newest undamaged checkpoint is
  /// loaded), a single checkpoint, or weights (WeightFiles; NameMap translates their names). With weights, training
  /// begins at step 0. Throws Error if the model or the optimizer does not fit, or if no checkpoint is undamaged.
  LoadedCheckpoint load(Dev& dev, const std::string& path, const WeightLoading& weights = {}) {
    detail::check_loadable(path);
    auto loaded = load_newest(dev, path, weights);
    partly_loaded_ = false;
    if (weights.only) {  // the optimizer begins anew
      loaded.state.batches_before += loaded.state.device.updates;
      loaded.state.device = {.loss_scale = 0};
    }
    if (replicas_ != nullptr) replicas_->updated(dev);
    return loaded;
  }

  /// Returns whether rank 0 finds something to load at this path. Collective.
  [[nodiscard]] bool is_there(Dev& dev, const std::string& folder) {
    return !places_in(dev, folder).places.empty();
  }

  /// Throws Error on all ranks if one does not see a file that rank 0 sees. Collective.
  void check_shared(Dev& dev, const std::string& path) {
    auto& world = mesh_.world();
    const auto sees = [&] { return detail::is_there(path); };
    const auto hosts =
        gather_texts(dev, world, rank() != 0 || sees() ? detail::host_name() : std::string());
    if (hosts.front().empty()) return;
    constexpr double late_s = 5;  // file systems show what another host has made a little later
    const auto seen = gather_texts(dev, world, detail::poll_until(sees, late_s) ? "seen" : "");
    for (std::size_t other = 1; other < seen.size(); ++other)
      check(!seen[other].empty(), "rank ", other, " (host ", hosts[other], ") does not see ", path,
            ", which rank 0 (host ", hosts[0], ") does; choose a folder that all hosts share");
  }

  /// own: this rank's error message, or empty. If any rank has one, all ranks throw SaveFailed with it and, if there
  /// are several, with that rank. Collective.
  void fail_together(Dev& dev, const std::string& own) {
    auto& world = mesh_.world();
    const auto named = own.empty() || world.size() == 1 ? own : detail::said_by(rank(), own);
    for (const auto& problem : gather_texts(dev, world, named))
      if (!problem.empty()) throw SaveFailed(problem);
  }
  [[nodiscard]] int rank() const { return mesh_.world().rank(); }
  /// Returns whether a load has failed after it had begun to change the run's tensors.
  [[nodiscard]] bool is_partly_loaded() const { return partly_loaded_; }

 private:
  template <class>
  friend class BackgroundSaver;
  /// Begins a save to FOLDER/step-N; BackgroundSaver does the rest. Collective over the mesh. Earlier checkpoints
  /// remain until the whole new one is on disk.
  [[nodiscard]] detail::CheckpointSave begin_save(Dev& dev, const std::string& path,
                                                  const RunState& state) {
    auto& world = mesh_.world();
    detail::CheckpointSave save(path, state.step, world.rank(), world.size());
    fail_together(dev, rank() == 0 ? detail::problem_in([&] { save.begin(); }) : std::string());
    return save;
  }
  /// Returns the parts of held pieces that this rank writes. Ranks that hold the same elements share the work: large
  /// pieces are cut, and small pieces are assigned in turn.
  [[nodiscard]] std::vector<HeldPiece<Dev>> pieces_to_write(Dev& dev) {
    constexpr std::size_t worth_cutting = 64 << 10;  // minimum bytes for each rank
    const auto& shape = mesh_.shape();
    std::vector<HeldPiece<Dev>> mine;
    int number = 0;
    // Replicas that step alone (LocalSgd) have optimizer states of their own: the first saves its own.
    const bool alike = replicas_ == nullptr || store_.is_sharded();
    for (auto& whole : held(dev)) {
      if (!whole.owned || whole.copy) continue;
      const bool replicated = whole.piece.split_dim < 0;
      if (whole.sharded_over_data) {  // tensor ranks may cut it differently
        if (!replicated || mesh_.tensor_index() == 0) mine.push_back(std::move(whole));
        continue;
      }
      const int tensor = replicated ? shape.tensor : 1;
      if (!alike && mesh_.data().rank() != 0) continue;
      const int copies = (alike ? shape.replicas() : 1) * tensor;
      const int me = mesh_.data().rank() * tensor + (replicated ? mesh_.tensor_index() : 0);
      const bool my_turn = number++ % copies == me;
      if (whole.piece.bytes() >= worth_cutting * detail::as_size(copies)) {
        const auto part = part_of(whole.piece.count(), copies, me);
        mine.push_back(whole);
        mine.back().piece = whole.piece.slice(part.first, part.last);
        mine.back().data = whole.data.slice(part);
      } else if (my_turn) {
        mine.push_back(std::move(whole));
      }
    }
    return mine;
  }

  /// Returns the record with the run's state and layout, for the index.
  [[nodiscard]] RunRecord with_state(const RunState& state, RunRecord record) const {
    const auto& shape = mesh_.shape();
    nlohmann::ordered_json json{
        {"format", detail::checkpoint_format},
        {"dhp", concat(version_major, ".", version_minor, ".", version_patch)}};
    RunState::visit(state, detail::checkpoint::JsonWriter{json});
    json["optimizer"] = optimizer_.name();
    json["precision"] = name_of(store_.options().compute);
    json.update(kept());
    for (const auto& [name, groups] : groups_of(store_.options()))
      if (groups > 1) json[name + "_groups"] = groups;
    json["layout"] = {{"data", shape.data}, {"tensor", shape.tensor}, {"pipeline", shape.pipeline}};
    if (shape.context > 1) json["layout"]["context"] = shape.context;
    json["run"] = std::move(record.about);
    record.about = std::move(json);
    return record;
  }

  /// Returns the facts that normally stay the same in a resumed run, by their names in the index.
  [[nodiscard]] nlohmann::ordered_json kept() const {
    nlohmann::ordered_json facts{{"seed", store_.options().seed}};
    if (const auto settings = optimizer_.settings(); !settings.empty())
      facts["settings"] = settings;
    if (!data_.empty()) facts["data"] = data_;
    return facts;
  }
  /// Returns each axis with its number of groups.
  [[nodiscard]] static std::vector<std::pair<std::string, int>> groups_of(
      const ParameterStoreOptions& store) {
    return {{"tensor", store.tensor_groups}, {"context", store.context_groups}};
  }
  [[nodiscard]] LoadedCheckpoint load_newest(Dev& dev, const std::string& path,
                                             const WeightLoading& weights) {
    auto [places, passed_over] = places_in(dev, path);
    for (const auto& place : places) {
      LoadedCheckpoint loaded{.from = place, .remarks = passed_over};
      check_shared(dev, place + "/index.json");
      if (WeightFiles::are_at(place)) {
        loaded.state.batches_before =
            load_weights(dev, WeightFiles(place), weights, loaded.remarks);
        return loaded;
      }
      if (detail::is_there(place + "/state.json")) {
        loaded.state = load_format_1(dev, place, weights.only);
        return loaded;
      }
      const auto damage = try_load(dev, loaded, weights);
      if (damage.empty()) return loaded;
      passed_over.push_back(damage);
    }
    fail(path, " has no checkpoint to go on from",
         passed_over.empty() ? "" : ", nothing in it is whole: " + passed_over.front());
  }

  [[nodiscard]] std::vector<HeldPiece<Dev>> held(Dev& dev) {
    if (replicas_ != nullptr) replicas_->synchronize(dev);
    return state_pieces(store_, optimizer_);
  }

  /// Returns the checkpoints in a folder as rank 0 sees them. Collective.
  [[nodiscard]] detail::StatePlaces places_in(Dev& dev, const std::string& path) {
    const auto seen = rank() == 0 ? detail::state_places(path) : detail::StatePlaces();
    return detail::gather_values(dev, mesh_.world(), seen).front();
  }

  /// A rank's result of reading a checkpoint.
  struct Attempt {
    std::string damage, unfit;      ///< messages; empty if all is well
    std::vector<std::string> read;  ///< names of the tensors that were read
    void pass(detail::Fields& fields) { fields(damage, unfit, read); }
  };
  /// Fills in `loaded`. Returns damage, or an empty text, the same on all ranks. Throws Error if the model does not
  /// fit.
  [[nodiscard]] std::string try_load(Dev& dev, LoadedCheckpoint& loaded,
                                     const WeightLoading& weights) {
    const bool only_weights = weights.only;
    Attempt own;
    std::optional<SavedPieces> saved;
    try {
      saved.emplace(loaded.from);
      if (rank() == 0) saved->index().check_files(loaded.from);
      auto pieces = held(dev);
      if (only_weights) pieces = store_.pieces();
      own.unfit = mismatch(*saved, pieces, only_weights);
      if (own.unfit.empty()) {
        for (auto piece : pieces) {
          piece.piece.name = source_of(*saved, piece.piece);
          saved->read(dev, piece);
          if (piece.owned && (mesh_.data().rank() == 0 || piece.sharded_over_data))
            own.read.push_back(piece.piece.name);
        }
        loaded.state = detail::run_state_of(saved->index().about, saved->path("index.json"));
        loaded.about = saved->index().about["run"];
      }
    } catch (const detail::OtherFormat& error) {
      own.unfit = error.sentence();
    } catch (const detail::SystemError& error) {
      // A file that is there, but cannot be read, may be whole.
      const auto none = {ENOENT, ENOTDIR, EISDIR, ELOOP};
      const bool there = std::find(none.begin(), none.end(), error.number) == none.end();
      (there ? own.unfit : own.damage) = error.sentence();
    } catch (const Error& error) {
      own.damage = error.sentence();
    }
    std::set<std::string> read;
    std::string damage, unfit;
    for (const auto& attempt : detail::gather_values(dev, mesh_.world(), own)) {
      read.insert(attempt.read.begin(), attempt.read.end());
      if (damage.empty()) damage = attempt.damage;
      if (unfit.empty()) unfit = attempt.unfit;
    }
    if (!read.empty() && !(damage + unfit).empty()) partly_loaded_ = true;
    check(unfit.empty(), unfit);
    if (!damage.empty()) return damage;
    if (only_weights) {
      optimizer_.values_changed(dev);
      return "";
    }
    const auto all_kept = weights.compare ? kept() : nlohmann::ordered_json::object();
    for (const auto& [name, now] : all_kept.items())
      if (const auto before = saved->index().about.value(name, now); before != now)
        loaded.remarks.push_back(concat(loaded.from, " was saved with the ", name, " ",
                                        before.dump(), " and this run has ", now.dump(),
                                        ": it does not go on as the saved run would have"));
    for (const auto& [name, own_groups] : groups_of(store_.options()))
      if (const int groups = saved->index().about.value(name + "_groups", 1);
          groups > 1 && groups != own_groups)
        loaded.remarks.push_back(concat(loaded.from, " was computed in ", groups, " ", name,
                                        " groups and this run goes on in ", std::max(own_groups, 1),
                                        ": its numbers differ by rounding; --deterministic with --",
                                        name, "-groups ", groups, " keeps every bit"));
    std::vector<std::string> unread;
    for (const auto& [name, pieces] : saved->index().tensors)
      if (const auto master = master_prefix + name; !name.starts_with(master_prefix))
        if (!read.contains(name) && !read.contains(master)) unread.push_back(name);
    if (!unread.empty())
      loaded.remarks.push_back(
          concat(loaded.from, " has ", detail::pluralize(unread.size(), "tensor"),
                 " for which this run has no place; the first is ", unread.front()));
    return "";
  }

  static constexpr const char* master_prefix = "optimizer/master/";

  /// Returns the name of the saved tensor to read a piece from. Weights in full precision are read from the saved
  /// master weights, if any. Master weights are read from the saved weights if the saved run had no master weights.
  [[nodiscard]] std::string source_of(const SavedPieces& saved, const Piece& piece) const {
    const auto master = master_prefix + piece.name;
    if (piece.name.starts_with(master_prefix)) {
      const auto value = piece.name.substr(std::string_view(master_prefix).size());
      return saved.find(piece.name) != nullptr ? piece.name : value;
    }
    const bool wide = piece.dtype == store_.accumulation();
    return wide && saved.find(master) != nullptr ? master : piece.name;
  }

  /// Returns a message if the model or the optimizer does not fit, otherwise an empty text.
  [[nodiscard]] std::string mismatch(const SavedPieces& saved,
                                     const std::vector<HeldPiece<Dev>>& pieces,
                                     bool only_weights) const {
    const auto& about = saved.index().about;
    const auto kind = about.value("optimizer", optimizer_.name());
    if (!only_weights && kind != optimizer_.name())
      return concat(saved.folder(), " was saved with the optimizer ", kind, ", this run has ",
                    optimizer_.name(), "; choose ", kind,
                    ", or export its weights and start from those");
    for (const auto& held : pieces) {
      const auto name = source_of(saved, held.piece);
      const auto* stored = saved.find(name);
      if (stored == nullptr)
        return concat(saved.folder(), " has no tensor ", name,
                      name.starts_with("optimizer/")
                          ? concat("; its weight was frozen then, or the optimizer had other "
                                   "options: --export the weights and begin with those (in your "
                                   "own program, files().load(\"",
                                   saved.folder(), "\", {.only = true}))")
                          : "; it was saved from another model");
      const auto& shape = stored->front().piece.shape;
      if (shape != held.piece.shape)
        return concat("tensor ", name, " of ", saved.folder(), " has the shape ", shape,
                      ", another shape than the model's ", held.piece.shape,
                      "; were the model's options the same?");
    }
    return "";
  }

  std::int64_t load_weights(Dev& dev, const WeightFiles& file, const WeightLoading& how,
                            std::vector<std::string>& remarks) {
    if (replicas_ != nullptr) replicas_->synchronize(dev);
    const auto batches = detail::load_weights(dev, mesh_.world(), store_, file, how, remarks);
    optimizer_.values_changed(dev);
    return batches;
  }

  /// Loads format 1, which was in use until 2026: one folder with whole tensors in two files.
  [[nodiscard]] RunState load_format_1(Dev& dev, const std::string& folder, bool only_weights) {
    std::vector<std::string> none;
    (void)load_weights(dev, WeightFiles(folder + "/model.safetensors"), {.all = true}, none);
    std::ifstream file(folder + "/state.json");
    const auto saved =
        detail::run_state_of(nlohmann::json::parse(file, nullptr, false), folder + "/state.json");
    if (only_weights) return saved;
    const SafeTensors state(folder + "/optimizer.safetensors");
    for (const auto& buffer : optimizer_.state())
      for (const auto& piece : store_.pieces(buffer.name, *buffer.buffer, buffer.narrow_only)) {
        const auto name = buffer.name + "." + piece.piece.name.substr(buffer.name.size() + 11);
        // A run in full precision saved no master weights: keep those made from the loaded weights.
        if (buffer.name == "master" && state.find(name) == nullptr) continue;
        detail::read_piece(dev, state, name, piece);
      }
    return saved;
  }

  Mesh<Dev>& mesh_;
  ParameterStore<Dev>& store_;
  Optimizer<Dev>& optimizer_;
  Replicas<Dev>* replicas_;
  std::string data_;
  bool partly_loaded_ = false;
};

}  // namespace dhp
