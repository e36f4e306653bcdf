// Loads weights of other programs and runs, in any spelling and layout; a run then begins with them at step 0. Each
// rank reads its pieces, and all ranks get the same report of loaded, new and left-over tensors.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/nn/low_rank_options.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/train/name_map.hpp>
#include <dhp/train/read_piece.hpp>
#include <dhp/train/weight_files.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dhp {

/// How a run begins from published weights.
struct WeightLoading {
  bool only = false;       ///< loads only weights; remarks list only damage and left-over tensors
  bool compare = true;     ///< remarks also list another seed, optimizer setting or data than saved
  bool all = false;        ///< a missing weight is an error; otherwise it keeps its initial value
  std::string new_head{};  ///< skips weights whose names begin with this; empty: none
  /// Prefix of the weights exported with the adapter. If set, only these and the adapter's may be missing in the files.
  std::optional<std::string> adapter_head{};
  std::string
      adapter{};  ///< folder of an adapter_model.safetensors, which has priority; empty: none
};

namespace detail {

/// Throws Error if the path names a file inside a run's folder, or files of PyTorch's own format.
inline void check_loadable(const std::string& path) {
  const auto has = [&](const char* name) { return detail::is_there(path + name); };
  const bool weights_of_pytorch = has("/pytorch_model.bin") || has("/pytorch_model.bin.index.json");
  std::error_code none;
  const bool published = WeightFiles::are_at(path);
  const bool is_file = !published && std::filesystem::is_regular_file(path, none);
  const std::filesystem::path place(path);
  const auto folder = place.has_parent_path() ? place.parent_path().string() : ".";
  check(!is_file || (place.filename() != "latest" && !detail::is_there(folder + "/index.json")),
        path, " is a file of a run; give its folder ", folder);
  check(published || !(is_file || weights_of_pytorch), path,
        " is no directory of checkpoints and has no .safetensors file; a file of PyTorch's "
        "(.pth, .bin) becomes one by: python3 -c 'import sys, torch, safetensors.torch as s; "
        "s.save_file({k: v.clone().contiguous() for f in sys.argv[2:] for k, v in "
        "torch.load(f, map_location=\"cpu\").items()}, sys.argv[1], {\"format\": \"pt\"})' ",
        is_file ? path + ".safetensors " + path
                : path + "/model.safetensors " + path + "/pytorch_model*.bin");
}

/// Sources of weights; the first source that has a tensor provides it.
using WeightSources = std::vector<std::pair<const WeightFiles*, NameMap>>;

/// Lists names: "a, b, c and 5 more".
[[nodiscard]] inline std::string listed(const std::set<std::string>& names,
                                        const std::string& none) {
  constexpr std::size_t most = 3;
  std::string text;
  std::size_t at = 0;
  for (const auto& name : names)
    if (at++ < most) text += concat(at == 1 ? "" : ", ", name);
  if (names.size() > most) text += concat(" and ", names.size() - most, " more");
  return names.empty() ? none : text;
}

/// Returns the highest count of batches in the file's batch norms.
[[nodiscard]] inline std::int64_t counted_batches(const WeightFiles& file) {
  std::int64_t batches = 0;
  for (const auto& [name, in_file] : file.tensors()) {
    const auto& stored = *in_file->find(name);
    if (!name.ends_with(batch_counter) || stored.dtype != DType::i64) continue;
    const auto counted = in_file->read(stored);
    std::int64_t number = 0;
    if (counted.size() == sizeof number) std::memcpy(&number, counted.data(), sizeof number);
    if (number < std::int64_t{1} << 50) batches = std::max(batches, number);  // a valid count
  }
  return batches;
}

/// A rank's result of reading weights.
struct WeightsRead {
  std::vector<std::string> read;   ///< names in the files
  std::vector<std::string> fresh;  ///< model weights that no file has
  std::string unfit;               ///< a message; empty if all fits
  void pass(Fields& fields) { fields(read, fresh, unfit); }
};

/// Reads this rank's pieces of the weights.
template <class Dev>
void read_weights(Dev& dev, const ParameterStore<Dev>& store, const WeightSources& sources,
                  const std::string& new_head, WeightsRead& own) {
  const auto& file = *sources.back().first;
  const NameMap skipped(file.skipped());
  for (const auto& piece : store.pieces()) {
    const auto& name = piece.piece.name;
    const bool is_new = !new_head.empty() && name.starts_with(new_head);
    bool is_read = false;
    for (const auto& [files, names] : sources) {
      const auto* const found = is_new ? nullptr : names.find(name);
      if (found == nullptr) continue;
      read_piece(dev, *files->tensors().at(*found), *found, piece);
      own.read.push_back(*found);
      is_read = true;
      break;
    }
    if (!is_read) own.fresh.push_back(name);
    const auto* const other = is_new ? nullptr : skipped.find(name);
    check(other == nullptr || is_read, file.path(), ": tensor ", name, " is of type ",
          other == nullptr ? "" : file.skipped().at(*other),
          ", which dhp does not compute in; F64, F32, BF16 and F16 would be right");
  }
}

/// Loads weights. Collective. Adds to remarks: loaded, new and left-over tensors. Returns counted_batches().
template <class Dev>
std::int64_t load_weights(Dev& dev, Comm<Dev>& world, ParameterStore<Dev>& store,
                          const WeightFiles& file, const WeightLoading& how,
                          std::vector<std::string>& remarks) {
  WeightSources sources;
  std::optional<WeightFiles> adapter;
  if (!how.adapter.empty()) {
    adapter.emplace(how.adapter + "/adapter_model.safetensors");
    sources.emplace_back(&*adapter, NameMap(adapter->tensors()));
  }
  sources.emplace_back(&file, NameMap(file.tensors()));
  std::int64_t batches = 0;
  WeightsRead own;
  try {
    read_weights(dev, store, sources, how.new_head, own);
    batches = counted_batches(file);
  } catch (const Error& error) {
    own.unfit = error.sentence();
  }
  const NameMap skipped(file.skipped());
  std::set<std::string> read, left, fresh;
  for (const auto& of_rank : gather_values(dev, world, own)) {
    check(of_rank.unfit.empty(), of_rank.unfit);
    read.insert(of_rank.read.begin(), of_rank.read.end());
    fresh.insert(of_rank.fresh.begin(), of_rank.fresh.end());
  }
  const auto exports = [&](const std::string& name) {
    return !how.adapter_head || is_of_adapter(name) ||
           (!how.adapter_head->empty() && name.starts_with(*how.adapter_head));
  };
  const auto place_of = [](const WeightFiles& files, const std::string& name) {
    const auto* const in = files.tensors().at(name);
    const auto& stored = *in->find(name);
    return std::tuple(in, stored.first, stored.last);
  };
  std::set<decltype(place_of(file, ""))> places;  // of what was read; names may share one
  for (const auto& [files, names] : sources)
    for (const auto& [model, name] : names.all())
      if (read.contains(name)) places.insert(place_of(*files, name));
  for (const auto& [files, names] : sources)
    for (const auto& [model, name] : names.all()) {
      if (!places.contains(place_of(*files, name))) left.insert(name);
      else
        check(files == &file || exports(model), how.adapter, " replaces ", model,
              ", which --export-adapter does not write; use --export");
    }
  for (const auto& [model, name] : skipped.all()) left.insert(name);  // types unknown to dhp
  check(!read.empty(), file.path(), " has none of this model's weights: it has ",
        listed(left, "no others"), "; the model has ", listed(fresh, "none"));
  check(!how.all || fresh.empty(), how.adapter.empty() ? "" : how.adapter + " beside ", file.path(),
        " lacks weights of this model: ", listed(fresh, ""));
  for (const auto& name : fresh)
    check(exports(name), file.path(), " has no ", name,
          ", so it would get initial values, which --export-adapter does not write; use --export");
  check(fresh.empty() || store.options().initialize, "weights that are not in ", file.path(),
        " have no initial values; make the store with ParameterStoreOptions::initialize");
  const auto left_over =
      concat("left over ", left.size() == 1 ? "is " : "are ", listed(left, "none"));
  if (!how.only)
    remarks.push_back(concat(file.path(), ": ", read.size(), " tensors are loaded; new ",
                             fresh.size() == 1 ? "is " : "are ", listed(fresh, "none"), "; ",
                             left_over));
  else if (!left.empty()) remarks.push_back(concat(file.path(), ": ", left_over));
  return batches;
}

}  // namespace detail

}  // namespace dhp
