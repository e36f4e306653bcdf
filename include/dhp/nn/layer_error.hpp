// An error or a non-finite result in a layer names the layer and its parents: "layer encoder > second: gemm: ...".
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/device/out_of_memory.hpp>

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace dhp {

namespace detail {
/// The first result of this rank's passes that is not finite. A pass does not end there, because other ranks may wait
/// for what it sends.
struct FirstNonFinite {
  bool found = false;
  std::int64_t checked = 0;  ///< number of results before it
  std::string layer{};       ///< with its parents; empty if another stage sent the result
  const char* what = "";

  /// While this lives, a layer's pass runs. If the result is found inside, names this layer as a parent.
  class Inside : NonCopyable {
   public:
    Inside(FirstNonFinite* first, std::string_view layer)
        : first_(first != nullptr && !first->found ? first : nullptr), layer_(layer) {}
    ~Inside() {
      if (first_ != nullptr && first_->found) first_->layer = concat(layer_, " > ", first_->layer);
    }

   private:
    FirstNonFinite* first_;
    std::string_view layer_;
  };
};

/// An error in an operation of a layer, such as a wrong shape.
class LayerError : public Error {
 public:
  LayerError(std::string layer, std::string sentence, std::source_location where)
      : Error(concat("layer ", layer, ": ", sentence), where),
        layer_(std::move(layer)),
        inner_(std::move(sentence)) {}
  [[nodiscard]] LayerError inside(const std::string& outer) const {
    return {concat(outer, " > ", layer_), inner_, where()};
  }

 private:
  std::string layer_, inner_;
};

/// Rethrows the current exception with the layer's name added; call it in an exception handler. Two kinds of errors are
/// not changed: special types that callers may catch, such as a lost rank or a user's own type, and messages that
/// already name a layer, such as the tape's.
[[noreturn]] inline void rethrow_inside(const std::string& layer) {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    throw error.inside(layer);
  } catch (const LayerError& error) {
    throw error.inside(layer);
  } catch (const Error& error) {
    const bool names_layer = error.sentence().starts_with("layer ");
    if (typeid(error) != typeid(Error) || names_layer) throw;
    throw LayerError(layer, error.sentence(), error.where());
  } catch (const std::exception& error) {
    const std::string_view type = typeid(error).name();  // mangled: std is St or NSt
    if (!type.starts_with("St") && !type.starts_with("NSt")) throw;
    throw LayerError(layer, sentence_of(error), std::source_location::current());
  }
}
/// Returns body(), whose errors name the layer.
decltype(auto) naming_layer(const std::string& layer, auto body) {
  try {
    return body();
  } catch (const std::exception&) {
    rethrow_inside(layer);
  }
}
}  // namespace detail

}  // namespace dhp
