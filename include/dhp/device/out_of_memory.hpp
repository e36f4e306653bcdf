// OutOfMemory: the error of a failed allocation. It collects the names of the enclosing layers.
#pragma once

#include <dhp/core/error.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace dhp {

class OutOfMemory : public Error {
 public:
  /// bytes: the size of the request. memory: a text about the full memory: its name and its use.
  OutOfMemory(std::size_t bytes, std::string memory, std::string layer = {})
      : Error(concat("out of memory: cannot allocate ", bytes, " bytes for a tensor",
                     layer.empty() ? "" : " of layer ", layer, memory.empty() ? "" : " in ", memory,
                     "; a smaller micro-batch, recomputation or more ranks on the tensor or "
                     "pipeline axis need less")),
        bytes_(bytes),
        memory_(std::move(memory)),
        layer_(std::move(layer)) {}

  /// Returns the same error with the name of the enclosing layer added.
  [[nodiscard]] OutOfMemory inside(const std::string& layer) const {
    return {bytes_, memory_, layer_.empty() ? layer : concat(layer, " > ", layer_)};
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::string memory_, layer_;
};

}  // namespace dhp
