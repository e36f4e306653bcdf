// AnyReducer: a reducer of any kind, chosen at run time.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/sharded_reducer.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

namespace dhp::detail {

template <class Dev>
class AnyReducer {
 public:
  virtual ~AnyReducer() = default;
  virtual void begin(const Step<Dev>& step) = 0;
  virtual void ready(Range range) = 0;
  virtual void finish() = 0;
  [[nodiscard]] virtual Replicas<Dev>* replicas() = 0;
};

template <class Dev, class R>
class ReducerModel final : public AnyReducer<Dev> {
 public:
  static_assert(Reducer<R>, "a reducer lacks ready(Range) or finish()");

  /// make() returns the reducer, which need not be movable.
  explicit ReducerModel(auto make) : reducer_(make()) {}
  void begin(const Step<Dev>& step) override {
    if constexpr (requires { reducer_.begin(step); }) reducer_.begin(step);
  }
  void ready(Range range) override { reducer_.ready(range); }
  void finish() override { reducer_.finish(); }
  [[nodiscard]] Replicas<Dev>* replicas() override {
    if constexpr (std::derived_from<R, Replicas<Dev>>) return &reducer_;
    else return nullptr;
  }

 private:
  R reducer_;
};

template <class Dev>
using AnyReducerPointer = std::unique_ptr<AnyReducer<Dev>>;
/// Makes a reducer once the store exists; its kind can be chosen before.
template <class Dev>
using MakeReducer = FunctionRef<AnyReducerPointer<Dev>(Dev&, ParameterStore<Dev>&, Comm<Dev>)>;

/// Makes the reducer that `options` choose; if replicas shard the store (ZeRO), ShardedReducer instead of Bucketed or
/// Plain.
template <class Dev, class Options>
[[nodiscard]] AnyReducerPointer<Dev> any_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                 Comm<Dev> group, const Options& options) {
  const auto wrap = [](auto make) -> AnyReducerPointer<Dev> {
    return AnyReducerPointer<Dev>(new ReducerModel<Dev, decltype(make())>(make));
  };
  if (store.is_sharded()) {
    check(std::is_same_v<Options, Bucketed> || std::is_same_v<Options, Plain>,
          "replicas that shard their state (ZeRO) sum gradients by shards, which late, compressing "
          "and user-written reducers do not: choose Bucketed, or no sharding");
    return wrap([&] { return ShardedReducer<Dev>(dev, store, group); });
  }
  return wrap([&] { return make_reducer(dev, store, group, options); });
}
template <class Dev, class... Options>
[[nodiscard]] AnyReducerPointer<Dev> any_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                 Comm<Dev> group,
                                                 const std::variant<Options...>& choice) {
  return std::visit([&](const auto& options) { return any_reducer(dev, store, group, options); },
                    choice);
}
template <class Dev>
[[nodiscard]] AnyReducerPointer<Dev> any_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                 Comm<Dev> group, const MakeReducer<Dev>& make) {
  return make(dev, store, std::move(group));
}

}  // namespace dhp::detail
