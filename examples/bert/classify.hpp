#pragma once

#include "../options/options.hpp"

namespace examples {

struct ConnectedRank;

/// As run_trainer calls it. Returns the exit status.
[[nodiscard]] int classify(const BertOptions& options, ConnectedRank* met);

}  // namespace examples
