#pragma once

#include "../common/options.hpp"

namespace examples {

struct MetRank;

/// As run_trainer calls it. Returns the exit status.
[[nodiscard]] int classify(const BertOptions& options, MetRank* met);

}  // namespace examples
