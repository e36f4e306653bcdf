// Verified steps: replicas repeat each other's computations. With exact sums the results are equal to the bit, so a
// difference reveals a processor or memory that computes wrong numbers without an error (Dixit et al. 2021, "Silent
// data corruptions at scale"). Steps are verified before the update, so no wrong number reaches the weights.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/core/fields.hpp>
#include <dhp/ops/fingerprint.hpp>
#include <dhp/train/training_run.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

namespace detail::verification {

/// The fingerprints that a rank sends to the other ranks in a verified step.
struct Signatures {
  struct Pass {
    std::int64_t given = 0;  ///< fingerprint of the summands and losses
    std::int64_t sums = 0;   ///< fingerprint of the sums over replicas
  };
  std::int64_t weights = 0;  ///< fingerprint of the weights that all replicas hold
  /// Pass k repeats the micro-batches of the replica that comes k places after this one, modulo replicas.
  std::vector<Pass> passes{};
  void pass(Fields& fields) { fields(weights, passes); }
};

struct Comparison {
  bool agrees = true;
  std::string what{};        ///< name of the values that differ
  std::vector<int> wrong{};  ///< the wrong ranks, all of one replica; empty if unknown
};

/// Returns the indices of values that differ from the majority, or nullopt if no value has more than half of the votes.
[[nodiscard]] inline std::optional<std::vector<std::size_t>> outvoted(
    const std::vector<std::int64_t>& values) {
  std::map<std::int64_t, std::size_t> votes;
  for (const auto value : values) ++votes[value];
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (2 * most->second <= values.size()) return std::nullopt;
  std::vector<std::size_t> others;
  for (std::size_t at = 0; at < values.size(); ++at)
    if (values[at] != most->first) others.push_back(at);
  return others;
}

/// Compares the signatures of all ranks of the mesh and finds the wrong ranks.
template <std::same_as<Signatures> S>  // a template: only programs that verify compile it
[[nodiscard]] Comparison compare(const MeshShape& mesh, const std::vector<S>& signatures) {
  const auto replicas = as_size(mesh.data);
  const auto tensor = as_size(mesh.tensor);
  const auto places = tensor * as_size(mesh.pipeline);
  const auto passes = signatures.front().passes.size();
  const auto rank_at = [&](std::size_t replica, std::size_t place) {
    return place % tensor + tensor * (replica + replicas * (place / tensor));
  };
  std::set<std::size_t> wrong;
  bool agrees = true, distinct = true;
  // Compares values that should be equal. rank_of(at) returns the rank that computed values[at].
  const auto compare = [&](const std::vector<std::int64_t>& values, const auto& rank_of) {
    const auto others = outvoted(values);
    agrees = agrees && others && others->empty();
    distinct = distinct && others;
    if (others)
      for (const auto at : *others) wrong.insert(rank_of(at));
  };
  const auto result = [&](const char* what) {
    std::set<std::size_t> in;  // indices of replicas
    for (const auto rank : wrong) in.insert(rank / tensor % replicas);
    Comparison made{agrees, what, {}};
    if (distinct && in.size() == 1) made.wrong.assign(wrong.begin(), wrong.end());
    return made;
  };

  for (std::size_t place = 0; place < places; ++place) {
    std::vector<std::int64_t> values;
    for (std::size_t replica = 0; replica < replicas; ++replica)
      values.push_back(signatures[rank_at(replica, place)].weights);
    compare(values, [&](std::size_t replica) { return rank_at(replica, place); });
  }
  if (!agrees) return result("weights");

  for (std::size_t place = 0; place < places; ++place)
    for (std::size_t share = 0; share < replicas; ++share) {
      const auto rank_of = [&](std::size_t pass) {
        return rank_at((share + pass * (replicas - 1)) % replicas, place);
      };
      std::vector<std::int64_t> values;
      for (std::size_t pass = 0; pass < passes; ++pass)
        values.push_back(signatures[rank_of(pass)].passes[pass].given);
      compare(values, rank_of);
    }
  if (!agrees) return result("gradients");

  for (std::size_t rank = 0; rank < signatures.size(); ++rank) {
    std::vector<std::int64_t> values;
    for (const auto& pass : signatures[rank].passes) values.push_back(pass.sums);
    compare(values, [&](std::size_t) { return rank; });
  }
  return result("sums of gradients");
}

}  // namespace detail::verification

namespace detail {
template <class Dev>
class StepVerifier final : public StepHook<Dev> {
 public:
  using typename StepHook<Dev>::Pass;
  /// Returns the current step's micro-batches of the replica that comes `ahead` places after this one, modulo replicas.
  using Batches = std::function<StepBatches<Dev>(int ahead)>;

  /// Keeps references. Verifies one step in `every`.
  StepVerifier(Dev& dev, Mesh<Dev>& mesh, ParameterStore<Dev>& store, Replicas<Dev>* replicas,
               std::int64_t every, Batches batches)
      : dev_(dev),
        mesh_(mesh),
        store_(store),
        replicas_(replicas),
        every_(every),
        batches_(std::move(batches)) {
    check(every >= 1, "every ", every, "th step cannot be verified; 1 or more would be right");
    check(replicas == nullptr || store.is_sharded(),
          "a step can be verified only where all replicas take each step together: choose a "
          "reducer that is not late");
    check(store.options().deterministic,
          "steps can be verified only with exact sums, which have the same bits on every rank");
    check(mesh.shape().context == 1,
          "steps can be verified only where ranks do not share the tokens of samples: take a "
          "context axis of 1");
  }

  [[nodiscard]] bool takes_part(std::int64_t step) const override { return step % every_ == 0; }

  /// Runs a step. Throws Error if ranks differ: first on the wrong ranks; on the others after the wrong ranks have
  /// ended. Collective over the mesh.
  [[nodiscard]] Tensor<Dev> run(const Step<Dev>& step, Pass pass) override {
    verification::Signatures mine{.weights = signature_of_weights()};
    auto losses = signed_pass(step, pass, mine);
    verification::Comparison found;
    for (int ahead = 1; ahead <= 2; ++ahead) {
      const auto others = batches_(ahead);
      auto again = step;
      again.batches = others.batches;
      (void)signed_pass(again, pass, mine);
      found = verification::compare(mesh_.shape(), gather_values(dev_, mesh_.world(), mine));
      if (found.agrees) return losses;
      if (!found.wrong.empty()) break;
    }
    end(step.context.step, found);
  }

 private:
  /// Fingerprints the summands that this replica contributes to sums over replicas, for the lifetime of the object.
  struct Signing : NonCopyable {
    Signing(ParameterStore<Dev>& of, View<Dev> in) : store(of) {
      store.watch_sums([size = of.size(), in](Dev& dev, const std::vector<View<Dev>>& summands,
                                              std::int64_t first, std::int64_t times) {
        for (std::size_t at = 0; at < summands.size(); ++at)
          fingerprint(dev, summands[at], first + static_cast<std::int64_t>(at) * size, in, times);
      });
    }
    ~Signing() { store.watch_sums({}); }
    ParameterStore<Dev>& store;
  };

  [[nodiscard]] std::int64_t signature_of_weights() {
    if (replicas_ != nullptr) replicas_->synchronize(dev_);
    auto sum = Tensor<Dev>::zeros(dev_, DType::i64, {1});
    std::int64_t first = 0;
    for (const auto& piece : store_.pieces()) {
      if (!piece.sharded_over_data) fingerprint(dev_, piece.data, first, sum.mut());
      first += piece.data.count();
    }
    return sum.template to_host<std::int64_t>(dev_).front();
  }
  [[nodiscard]] Tensor<Dev> signed_pass(const Step<Dev>& step, Pass pass,
                                        verification::Signatures& mine) {
    auto found = Tensor<Dev>::zeros(dev_, DType::i64, {2});
    const auto given = found.mut().slice(0, 1);
    auto losses = [&] {
      const Signing signing(store_, given);
      return pass(step);
    }();
    fingerprint(dev_, losses, 2 * store_.size(), given);  // lower indices: gradients
    fingerprint(dev_, store_.gradients(), 0, found.mut().slice(1, 2));
    mesh_.world().synchronize(dev_);
    const auto values = found.template to_host<std::int64_t>(dev_);
    mine.passes.push_back({values[0], values[1]});
    return losses;
  }
  [[noreturn]] void end(std::int64_t step, const verification::Comparison& found) {
    auto& world = mesh_.world();
    const auto& wrong = found.wrong;
    const bool others = mesh_.shape().data > 1;
    if (wrong.empty())
      fail("step ", step, ": replicas have different ", found.what,
           ", and it can't be told which of them is wrong", others ? "" : " (there is only one)",
           "; the step was not applied: begin again from a checkpoint, on other machines");
    if (std::find(wrong.begin(), wrong.end(), world.rank()) != wrong.end())
      fail("step ", step, ": rank ", world.rank(), " has other ", found.what, " than ",
           others ? "other replicas have from the same samples" : "when it repeated the step",
           "; its processor or memory gives wrong numbers, the step was not applied, and this rank "
           "ends");
    world.barrier();  // throws when a wrong rank ends
    fail("step ", step, ": rank ", wrong.front(), " has other ", found.what,
         " than other replicas, and goes on");
  }

  Dev& dev_;
  Mesh<Dev>& mesh_;
  ParameterStore<Dev>& store_;
  Replicas<Dev>* replicas_;
  std::int64_t every_;
  Batches batches_;
};
}  // namespace detail

/// Verifies one step in `every` of a run against silent errors, before the update. batches(ahead) must return the
/// current step's micro-batches of the replica that comes `ahead` places after this one, modulo replicas.
template <class Dev>
void verify_every(TrainingRun<Dev>& run, std::int64_t steps,
                  std::type_identity_t<typename detail::StepVerifier<Dev>::Batches> batches) {
  run.trainer().set_hook(std::make_unique<detail::StepVerifier<Dev>>(
      run.device(), run.mesh(), run.store(), run.replicas(), steps, std::move(batches)));
}

}  // namespace dhp
