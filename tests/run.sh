#!/usr/bin/env bash
# Installs what is missing, builds preset release and runs all tests: bash tests/run.sh
# With arguments they go to ctest, for instance: bash tests/run.sh -R pipeline
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
# The compilers want about 1 GB each.
jobs=$(nproc)
part "install what is missing" bash .ci/install_packages.sh \
  git g++ cmake ninja-build ccache time doctest-dev libcli11-dev nlohmann-json3-dev \
  zlib1g-dev libpng-dev libjpeg-dev libssl-dev python3 \
  optional:python3-numpy optional:python3-torch optional:libdnnl-dev optional:libeigen3-dev optional:clang-format \
  optional:libgloo-dev optional:libopenmpi-dev optional:openmpi-bin optional:slurm-wlm optional:munge optional:iproute2 \
  optional:shellcheck optional:python3-yaml \
  optional:dataset-fashion-mnist optional:wordnet-base
part "configure" cmake --preset release
part "build" cmake --build --preset release -j "$jobs"
part "test" ctest --preset release -j "$jobs" --output-on-failure "$@"
parts_done "All tests passed."
