// ModelBuilder constructs layers. It numbers parameters and random streams in the *whole* model, before stages are cut
// or weights are split, so masks and initial weights are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/core/append.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/nn/group_sum.hpp>
#include <dhp/nn/low_rank_options.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class Tape;
template <class Dev>
class ModelBuilder;

namespace detail {
/// An adapter of a linear layer: its result is added to the layer's result (nn/low_rank.hpp).
template <class Dev>
class Adapter {
 public:
  virtual ~Adapter() = default;
  /// Adds the adapter's output for x [rows, in] to y [rows, out].
  virtual void forward(Dev& dev, ConstView<Dev> x, View<Dev> y, Tape<Dev>& tape) = 0;
  /// Adds the adapter's input gradient for dy [rows, out] to dx [rows, in]. x: the x of forward.
  virtual void backward(Dev& dev, const Tensor<Dev>& x, const Tensor<Dev>& dy, View<Dev> dx,
                        Tape<Dev>& tape) = 0;
  [[nodiscard]] virtual double flops(std::int64_t rows) const = 0;
  virtual void parameters(ParameterList<Dev>& out) const = 0;
};
/// Makes the adapter of the layer with this name and weight [out, in], from the builder's low_rank() options.
template <class Dev>
[[nodiscard]] std::shared_ptr<Adapter<Dev>> make_low_rank(ModelBuilder<Dev>& build,
                                                          const std::string& name,
                                                          const ParameterSpec& weight);
/// Returns the number of row groups on the context axis; 0 if sums over the axis may be added in any order.
[[nodiscard]] inline int context_groups_of(const ParameterStoreOptions& store, int ranks) {
  if (!store.deterministic) return 0;
  const int groups = store.context_groups == 0 ? ranks : store.context_groups;
  check(groups >= 1 && groups % ranks == 0, "the model cannot be computed in ", groups,
        " context groups on a context axis of ", ranks,
        ": choose --context-groups as a multiple of the axis, the same in all runs that are to "
        "agree");
  return groups;
}
}  // namespace detail

template <class Dev>
class ModelBuilder {
 public:
  Comm<Dev> tensor;   ///< splits the layers
  Comm<Dev> data;     ///< for synchronized batch norm only
  Comm<Dev> context;  ///< splits the rows of samples

  /// store: options of the parameter store. If it is deterministic, the model also gets tensor groups, see group().
  explicit ModelBuilder(Mesh<Dev>& mesh, const ParameterStoreOptions& store = {})
      : ModelBuilder(mesh.tensor(), mesh.data()) {
    context = mesh.context();
    context_groups_ = detail::context_groups_of(store, context.size());
    if (store.deterministic) group(store.tensor_groups);
  }
  /// Builds without a mesh; Comm<Dev>{} is a group of one rank.
  explicit ModelBuilder(Comm<Dev> tensor_axis, Comm<Dev> data_axis = {})
      : tensor(std::move(tensor_axis)), data(std::move(data_axis)) {}

  /// Sets the model's table of placements on the tensor axis; call it before making layers. Without a table all
  /// parameters are replicated. divisible: all split dimensions (such as heads) can be cut into d equal groups for each
  /// divisor d of this number; 0 means that the model has no tensor groups.
  void place(Placements table, std::int64_t divisible = 0) {
    check(parameters_ == 0,
          "call place() before making the layers of the model, which follow its table");
    placements_ = detail::PlacementTable(std::move(table));
    groups_ = groups_of(divisible);
    shares_rows_ = placements_.has(Placement::shares);
  }
  /// Sets the number of tensor groups; call it before place(). Layers then compute split dimensions in `groups` equal
  /// pieces for any size of the tensor axis, and add their sums in one order, so the axis changes no bit. 0 means the
  /// highest possible number up to 12. Your own layers follow this too if they make their parameters with pieces().
  void group(int groups = 0) { wanted_groups_ = groups; }
  /// Returns the number of tensor groups; 0 without them.
  [[nodiscard]] int groups() const { return groups_; }
  /// Returns the number of row groups of a sample, the same in all layouts. Attention adds the groups in a fixed order.
  [[nodiscard]] int context_groups() const { return context_groups_; }
  /// Returns the one progress helper of all layers that send tensors around the context axis. Collective.
  [[nodiscard]] std::shared_ptr<Progress<Dev>> around_context() {
    if (!around_context_) around_context_ = std::make_shared<Progress<Dev>>(context);
    return around_context_;
  }
  /// Returns the sum over the pieces that a placement makes. shares: each rank's rows of the result.
  [[nodiscard]] GroupSum<Dev> sum_of_pieces(Placement place, RowShares<Dev> shares = {}) const {
    if (place == Placement::replicated) return {};
    return GroupSum<Dev>(tensor, groups_, std::move(shares));
  }
  /// Returns which rows of x and y each rank holds between layers that the tensor axis splits. It applies to layers
  /// made now: ranks share rows if the table has a row with `shares`, until whole_rows() is called.
  [[nodiscard]] RowShares<Dev> row_shares() const {
    if (whole_rows_) return {};
    return RowShares<Dev>(shares_rows_ ? tensor : Comm<Dev>(), groups_);
  }
  /// Makes all later layers work on all rows on each rank. Returns the previous row_shares().
  RowShares<Dev> whole_rows() {
    auto before = row_shares();
    shares_rows_ = false;
    whole_rows_ = true;
    return before;
  }
  [[nodiscard]] Placement placement(const std::string& parameter) {
    return placements_.find(parameter, tensor.size());
  }

  /// Freezes all parameters made later, except those whose names `accepts` accepts. Running statistics are still
  /// updated.
  void train_only(std::function<bool(const std::string& name)> accepts) {
    trains_ = std::move(accepts);
  }

  /// Adds adapters to the linear layers that are made later and that the options name. train_only() chooses the trained
  /// parameters; it must also accept the names of the adapters' parameters.
  void adapt(LowRankOptions options) {
    low_rank_ = std::move(options);
    make_adapter_ = detail::make_low_rank<Dev>;  // programs without adapters do not compile them
  }
  [[nodiscard]] const LowRankOptions& low_rank() const { return low_rank_; }
  /// Returns the adapter of a linear layer under construction; null for most layers.
  [[nodiscard]] std::shared_ptr<detail::Adapter<Dev>> adapter(const std::string& layer,
                                                              const ParameterSpec& weight) {
    const auto entries = low_rank_.matching(layer);
    if (entries.empty()) return nullptr;
    detail::append(adapted_, entries);
    return make_adapter_(*this, layer, weight);
  }
  /// Call it after all layers are made: throws Error if an adapter's name matches no layer, or if a row of the
  /// placements decides nothing.
  void check_described() const {
    placements_.check_used(tensor.size());
    for (const auto& entry : low_rank_.layers)
      check(std::find(adapted_.begin(), adapted_.end(), entry) != adapted_.end(),
            "no linear layer of the model is called ", entry,
            "; give the whole name of a layer to adapt, or its end after a dot");
  }

  /// Throws Error if a parameter has no memory, because no part of the model lists it.
  void check_listed() const {
    for (const auto& one : made_)
      if (const auto parameter = one.lock())
        check(parameter->listed, "parameter ", parameter->spec.name,
              " is in no layer's list: parameters() of the layer that holds it has to add it");
  }

  /// Returns a hash of the names, shapes and placements of all parameters.
  [[nodiscard]] std::uint64_t described() const { return described_; }
  [[nodiscard]] std::uint32_t next_use() { return uses_++; }
  /// Makes a parameter with the table's placement; dims: the dimension that each placement splits. Throws Error if this
  /// rank holds several pieces of it, see pieces().
  [[nodiscard]] Parameter<Dev> parameter(ParameterSpec spec, PlacementDims dims = {}) {
    const auto place = placement(spec.name);
    check(dims.dim_of(place) < 0 || sum_of_pieces(place).pieces() == 1, "parameter ", spec.name,
          " is split, and this deterministic run computes its layer in ", groups_,
          " tensor groups: make it by pieces(), or give place() no number of equal parts, and H "
          "then changes last digits");
    return make_pieces(std::move(spec), place, dims, 1)[0];
  }
  /// Makes a parameter as the pieces that this rank holds: one for each of its tensor groups, or a single piece.
  [[nodiscard]] ParameterList<Dev> pieces(ParameterSpec spec, PlacementDims dims) {
    const auto place = placement(spec.name);
    return pieces(std::move(spec), place, dims);
  }
  /// Makes pieces whose placement the layer chooses, such as the factors of an adapter.
  [[nodiscard]] ParameterList<Dev> pieces(ParameterSpec spec, Placement place, PlacementDims dims) {
    return make_pieces(std::move(spec), place, dims, sum_of_pieces(place).pieces());
  }
  /// Throws Error unless the parameter has the placement that `other`, a parameter of the same layer, requires.
  void check_matching_placement(const ParameterSpec& parameter, Placement required,
                                const ParameterSpec& other) const {
    if (parameter.placement != required)
      fail_placement(parameter,
                     concat("the placement ", other.placement, " of ", other.name, " requires "),
                     to_text(required));
  }
  /// Throws Error if ranks share the rows of a linear layer with a replicated weight, whose gradient needs all rows.
  void check_shared(const ParameterSpec& weight) const {
    if (shares_rows_ && weight.placement == Placement::replicated)
      fail_placement(weight, "ranks share the rows of its layer, which then needs ",
                     "columns, rows, heads or words");
  }

 private:
  /// pieces: number of pieces on this rank.
  [[nodiscard, gnu::cold]] ParameterList<Dev> make_pieces(ParameterSpec spec, Placement place,
                                                          PlacementDims dims, int pieces) {
    check(spec.shape.count() > 0, "parameter ", spec.name, " of shape ", spec.shape,
          " has no elements; extents of 1 or more would be right");
    spec.frozen = !spec.buffer && trains_ && !trains_(spec.name);
    spec.placement = place;
    const int dim = dims.dim_of(place);
    const bool shared = dims.shares && shares_rows_;
    if (shared && place != Placement::shares)
      fail_placement(spec, "ranks share the rows of its layer, which needs ", "shares");
    if (!shared && dim < 0 && place != Placement::replicated)
      fail_placement(spec, "its layer can follow ", detail::followed(dims));
    const auto use = next_use();
    const int index = parameters_++;
    described_ = detail::fnv1a(concat(described_, spec.name, spec.shape, place, spec.frozen));
    ParameterList<Dev> list;
    for (int at = 0; at < pieces; ++at) {
      auto piece = spec;
      if (dim >= 0) {
        const int which = tensor.rank() * pieces + at;
        piece = split(std::move(piece), dim, tensor.size() * pieces, which);
        if (pieces * tensor.size() == groups_) {
          piece.group = which;
          piece.groups = groups_;
        }
      }
      list.push_back(std::make_shared<ParameterState<Dev>>(std::move(piece), use, index));
      made_.emplace_back(list.back());
    }
    return list;
  }
  [[nodiscard]] int groups_of(std::int64_t divisible) const {
    if (!wanted_groups_ || divisible == 0) return 0;
    const int ranks = tensor.size();
    check(divisible % ranks == 0,
          "a deterministic run cannot split this model over a tensor axis of ", ranks,
          ": its heads, channels or classes fall into ", divisible,
          " equal parts; choose a divisor of that, or plain sums");
    int groups = *wanted_groups_;
    if (groups == 0)
      for (int each = 1; each <= 12; ++each)
        if (divisible % each == 0) groups = each;
    check(groups >= 1 && groups <= detail::max_tree_leaves && divisible % groups == 0 &&
              groups % ranks == 0,
          "the model cannot be computed in ", groups, " tensor groups on a tensor axis of ", ranks,
          ": the axis has to divide the groups, and the groups have to divide the ", divisible,
          " equal parts of heads, channels or classes; choose such --tensor-groups, the same in "
          "all runs that are to agree");
    return groups;
  }
  [[noreturn]] void fail_placement(const ParameterSpec& of, const std::string& why,
                                   const std::string& possible) const {
    fail(of.name, " has the placement ", of.placement, " on a tensor axis of ", tensor.size(),
         ", but ", why, possible, "; change its row in the model's placements");
  }

  std::uint32_t uses_ = 1;
  int parameters_ = 0;
  std::uint64_t described_ = 0;
  std::function<bool(const std::string&)> trains_;
  detail::PlacementTable placements_;
  std::optional<int> wanted_groups_;
  int groups_ = 0, context_groups_ = 0;
  bool shares_rows_ = false, whole_rows_ = false;
  std::shared_ptr<Progress<Dev>> around_context_;
  LowRankOptions low_rank_;
  decltype(&detail::make_low_rank<Dev>) make_adapter_ = nullptr;
  std::vector<std::weak_ptr<const ParameterState<Dev>>> made_;
  std::vector<std::string> adapted_;  // entries of the adapter options that match a layer
};

}  // namespace dhp
