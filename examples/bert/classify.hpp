#pragma once

#include "../common/options.hpp"

namespace examples {

/// Returns the exit status.
[[nodiscard]] int classify(const BertOptions& options);

}  // namespace examples
