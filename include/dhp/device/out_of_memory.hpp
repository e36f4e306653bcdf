// OutOfMemory: a tensor did not fit. It collects the names of the layers it happened in, from the inside out.
#pragma once

#include <dhp/core/error.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace dhp {

class OutOfMemory : public Error {
 public:
  /// where: the memory that was full, and how full; `bytes` were asked for.
  OutOfMemory(std::size_t bytes, std::string memory, std::string layer = {})
      : Error(concat("out of memory: there are no ", bytes, " bytes for a tensor",
                     layer.empty() ? "" : " of layer ", layer, memory.empty() ? "" : " in ", memory,
                     "; a smaller micro-batch, recomputation or more ranks on the tensor or "
                     "pipeline axis need less")),
        bytes_(bytes),
        memory_(std::move(memory)),
        layer_(std::move(layer)) {}

  /// The same, seen from the layer that it happened in.
  [[nodiscard]] OutOfMemory inside(const std::string& layer) const {
    return {bytes_, memory_, layer_.empty() ? layer : concat(layer, " > ", layer_)};
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::string memory_;
  std::string layer_;
};

}  // namespace dhp
