// append adds the elements of one vector to another. It needs push_back only, which most programs compile anyway.
#pragma once

#include <dhp/core/config.hpp>

#include <vector>

namespace dhp::detail {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  for (const auto& element : from) to.push_back(element);
}

}  // namespace dhp::detail
