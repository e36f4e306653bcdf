#!/usr/bin/env bash
# Installs missing packages, builds preset release and runs the quick tests: bash tests/run.sh
# --all adds the slow tests (labels slow and acceptance), of whole programs for instance; .ci/run uses it. Other
# arguments go to ctest, for instance: bash tests/run.sh -R pipeline
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
# A compiler needs 1 to 2 GB. ctest gets four jobs for each core: a computing test takes three, a waiting one takes one.
jobs=$(nproc)
which=(-L quick)
programs=()
site=()  # packages for the test of the site
if [ "${1:-}" = --all ]; then
  which=()
  programs=(--target all acceptance_programs)
  site=(python3-venv chromium chromium-driver clang-16 lld-16 wasi-libc libc++-16-dev-wasm32 libc++abi-16-dev-wasm32
    libclang-rt-16-dev-wasm32)
  shift
fi
part "install what is missing" bash .ci/install_packages.sh \
  git g++ cmake ninja-build ccache time doctest-dev libcli11-dev nlohmann-json3-dev \
  zlib1g-dev libpng-dev libjpeg-dev libutf8proc-dev libssl-dev python3 \
  optional:python3-numpy optional:python3-torch optional:libdnnl-dev optional:libeigen3-dev optional:clang-format \
  optional:libcurl4-openssl-dev optional:etcd-server optional:libonnx-dev optional:libprotobuf-dev \
  optional:libgloo-dev optional:libopenmpi-dev optional:openmpi-bin optional:slurm-wlm optional:munge optional:iproute2 \
  optional:dpkg-dev optional:file optional:shellcheck optional:python3-yaml optional:python3-matplotlib optional:g++-11 \
  optional:dataset-fashion-mnist optional:wordnet-base "${site[@]/#/optional:}"
part "configure" cmake --preset release -DDHP_UNIT_FILES=24
part "build" cmake --build --preset release -j "$jobs" "${programs[@]}"
part "test" ctest --preset release -j $((4 * jobs)) --output-on-failure --no-tests=error "${which[@]}" "$@"
parts_done "All tests passed."
