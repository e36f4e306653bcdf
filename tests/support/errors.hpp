// What an action was refused with.
#pragma once

#include <dhp/core/error.hpp>

#include <string>

namespace tests {

// The sentence of the Error that it throws; "" where it throws none.
template <class Action>
[[nodiscard]] std::string error_of(Action action) {
  try {
    static_cast<void>(action());
  } catch (const dhp::Error& error) {
    return error.sentence();
  }
  return "";
}

}  // namespace tests
