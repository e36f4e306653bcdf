// GPT-2's matrices in its files: Conv1D, whose weights are [in, out], and whose queries, keys and values lie side by
// side in one. dhp's models have [out, in], each of its own: c_attn.query, c_attn.key and c_attn.value.
#pragma once

#include <dhp/core/shape.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dhp::detail {

inline constexpr const char* conv1d_thirds[] = {".query", ".key", ".value"};

/// The place of a weight or bias in a file.
struct Conv1dPlace {
  std::string name;         ///< name in the file
  bool transposed = false;  ///< [in, out]
  int part = 0;
  int parts = 1;  ///< side by side in `name`

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

  /// The constructor's argument.
  [[nodiscard]] std::string model_name() const {
    if (parts == 1) return name;
    const auto ending = name.rfind('.');
    return name.substr(0, ending) + conv1d_thirds[part] + name.substr(ending);
  }
  /// [out, in] or [out] of the model, as the file has it.
  [[nodiscard]] std::vector<std::int64_t> file_shape(std::vector<std::int64_t> extents) const {
    extents[0] *= parts;
    if (transposed) std::swap(extents[0], extents[1]);
    return extents;
  }
  /// The place in the file of an element of the model's weight of this shape.
  [[nodiscard]] std::int64_t file_place(const Shape& shape, std::int64_t element) const {
    const auto out = shape[0], in = shape.count() / out;
    if (!transposed) return part * shape.count() + element;
    return element % in * out * parts + part * out + element / in;
  }
  /// Whether the file has another order of elements than the model.
  [[nodiscard]] bool moves() const { return transposed || parts > 1; }
};

}  // namespace dhp::detail
