#pragma once

#include "../options/options.hpp"

namespace examples {

struct ConnectedRank;

/// Runs train_bert --task classify; run_trainer calls it. Returns the exit status.
[[nodiscard]] int classify(const BertOptions& options, ConnectedRank* met);

}  // namespace examples
