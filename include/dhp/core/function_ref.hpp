// FunctionRef is a non-owning reference to a callable. A function that takes one is compiled once, not per callable.
#pragma once

#include <dhp/core/config.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace dhp {

template <class Signature>
class FunctionRef;

/// The callable must outlive all calls.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Function>
    requires(!std::same_as<std::remove_cvref_t<Function>, FunctionRef> &&
             std::invocable<Function&, Arguments...>)
  FunctionRef(Function&& function)
      : of_(reinterpret_cast<const std::byte*>(std::addressof(function))),
        call_([](const std::byte* of, Arguments... arguments) -> Result {
          using Target = std::remove_reference_t<Function>;
          auto& target = *reinterpret_cast<Target*>(const_cast<std::byte*>(of));
          return static_cast<Result>(target(std::forward<Arguments>(arguments)...));
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(of_, std::forward<Arguments>(arguments)...);
  }

 private:
  const std::byte* of_;
  Result (*call_)(const std::byte*, Arguments...);
};

}  // namespace dhp
