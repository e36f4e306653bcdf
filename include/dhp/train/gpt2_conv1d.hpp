// The layout of GPT-2's weight files: a Conv1D weight is [in, out], and queries, keys and values are joined in one
// matrix. dhp's models have [out, in] and separate matrices c_attn.query, c_attn.key and c_attn.value.
#pragma once

#include <dhp/core/shape.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace dhp::detail {

inline constexpr const char* conv1d_thirds[] = {".query", ".key", ".value"};

/// Where a model's weight or bias lies in a file.
struct Conv1dPlace {
  std::string name;         ///< name in the file
  bool transposed = false;  ///< the file has [in, out]
  int part = 0;
  int parts = 1;  ///< number of parts side by side in `name`

  explicit Conv1dPlace(std::string model_name) : name(std::move(model_name)) {
    if (!name.starts_with("transformer.h.")) return;
    const auto ending = name.rfind('.');
    auto layer = name.substr(0, ending);
    const bool is_weight = name.substr(ending) == ".weight";
    for (int which = 0; which < 3; ++which)
      if (layer.ends_with(std::string(".c_attn") + conv1d_thirds[which])) {
        layer.erase(layer.rfind('.'));
        name = layer + name.substr(ending);
        part = which;
        parts = 3;
      }
    transposed = is_weight && (layer.ends_with(".c_attn") || layer.ends_with(".c_proj") ||
                               layer.ends_with(".c_fc"));
  }

  /// Returns the name in the model, the constructor's argument.
  [[nodiscard]] std::string model_name() const {
    if (parts == 1) return name;
    const auto ending = name.rfind('.');
    return name.substr(0, ending) + conv1d_thirds[part] + name.substr(ending);
  }
  /// Returns the file's extents for the model's [out, in] or [out].
  [[nodiscard]] std::vector<std::int64_t> file_shape(std::vector<std::int64_t> extents) const {
    extents[0] *= parts;
    if (transposed) std::swap(extents[0], extents[1]);
    return extents;
  }
  /// Returns an element's index in the file. shape: the shape of the model's weight; element: the index in this weight.
  [[nodiscard]] std::int64_t file_place(const Shape& shape, std::int64_t element) const {
    const auto out = shape[0], in = shape.count() / out;
    if (!transposed) return part * shape.count() + element;
    return element % in * out * parts + part * out + element / in;
  }
  /// Returns whether the elements' order in the file differs from the model's.
  [[nodiscard]] bool moves() const { return transposed || parts > 1; }
};

}  // namespace dhp::detail
