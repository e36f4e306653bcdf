// ReducerChoice: a reducer chosen at run time.
#pragma once

#include <dhp/parallel/delayed_reducer.hpp>
#include <dhp/parallel/local_sgd.hpp>
#include <dhp/parallel/one_bit.hpp>
#include <dhp/parallel/power_sgd.hpp>
#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/sharded_reducer.hpp>
#include <dhp/parallel/sixteen_bit.hpp>
#include <dhp/parallel/top_k.hpp>
#include <dhp/parallel/trainable.hpp>

#include <memory>
#include <utility>
#include <variant>

namespace dhp {

/// For unsharded stores. A reducer of your own adds an overload of make_reducer.
using ReducerChoice =
    std::variant<Bucketed, Plain, SixteenBit, TopK, PowerSgd, OneBit, Delayed, LocalSgd>;

/// Whether each step uses the complete sum of its own gradients.
[[nodiscard]] inline bool sums_all(const ReducerChoice& choice) {
  return std::holds_alternative<Bucketed>(choice) || std::holds_alternative<Plain>(choice);
}

namespace detail {
/// A reducer of any kind, chosen at run time.
template <class Dev>
class AnyReducer {
 public:
  /// make() returns the reducer, which need not be movable.
  template <class Make>
  explicit AnyReducer(Make make)
      : model_(std::make_unique<Model<decltype(make())>>(std::move(make))) {}

  void begin(const Step<Dev>& step) { model_->begin(step); }
  void ready(Range range) { model_->ready(range); }
  void finish() { model_->finish(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void begin(const Step<Dev>&) = 0;
    virtual void ready(Range) = 0;
    virtual void finish() = 0;
  };
  template <class R>
  struct Model final : Base {
    template <class Make>
    explicit Model(Make make) : reducer(make()) {}
    void begin(const Step<Dev>& step) override {
      if constexpr (requires { reducer.begin(step); }) reducer.begin(step);
    }
    void ready(Range range) override { reducer.ready(range); }
    void finish() override { reducer.finish(); }
    R reducer;
  };
  std::unique_ptr<Base> model_;
};
}  // namespace detail

/// The reducer of these options, or that of ZeRO where replicas shard the store.
template <class Dev, class... Options>
[[nodiscard]] detail::AnyReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                   Comm<Dev> group,
                                                   const std::variant<Options...>& choice) {
  if (store.is_sharded())
    return detail::AnyReducer<Dev>(
        [&] { return detail::ShardedReducer<Dev>(dev, store, std::move(group)); });
  return std::visit(
      [&](const auto& options) {
        return detail::AnyReducer<Dev>(
            [&] { return make_reducer(dev, store, std::move(group), options); });
      },
      choice);
}

namespace detail {
/// A choice that was made where the device was not known yet.
template <class Dev>
using MakeReducer = FunctionRef<AnyReducer<Dev>(Dev&, ParameterStore<Dev>&, Comm<Dev>)>;
}  // namespace detail
template <class Dev>
[[nodiscard]] detail::AnyReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                   Comm<Dev> group, detail::MakeReducer<Dev> make) {
  return make(dev, store, std::move(group));
}

}  // namespace dhp
