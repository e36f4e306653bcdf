#!/usr/bin/env bash
# check.sh WORK [citation|debian|conan|vcpkg|spack|container|container.cuda]...: tries the packagings of dhp that no
# test covers, in the folder WORK; without a name, all of them. Python's tools are installed in WORK; vcpkg and spack
# must be in PATH. Reports and skips what this machine cannot do.
set -euo pipefail
mkdir -p "$1"
work=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
here=cmake/packages
shift
[ $# -gt 0 ] || set -- citation debian conan vcpkg spack container container.cuda

has() { command -v "$1" >/dev/null || { echo "left out: there is no $1 here"; return 1; }; }
python_tool() {
  [ -e "$work/venv" ] || python3 -m venv "$work/venv"
  [ -e "$work/venv/bin/$1" ] || "$work/venv/bin/pip" install -q "$1"
}
consumer() { # builds a user's project with the dhp that these CMake options find
  cmake -S tests/consumer -B "$work/consumer" --fresh "$@"
  cmake --build "$work/consumer" --target plain cpu
  "$work/consumer/plain" && "$work/consumer/cpu"
}

check_citation() {
  python_tool cffconvert
  "$work/venv/bin/cffconvert" --validate -i CITATION.cff
}
check_debian() {
  has lintian || return 0
  cpack --config build/release/CPackConfig.cmake -B "$work/debian"
  lintian --fail-on error --allow-root "$work"/debian/*.deb
}
check_conan() {
  python_tool conan
  export CONAN_HOME=$work/conan
  "$work/venv/bin/conan" profile detect --force
  "$work/venv/bin/conan" create $here/conan --no-remote -s compiler.cppstd=20 -c tools.cmake.cmake_layout:test_folder="$work"
}
check_vcpkg() {
  has vcpkg || return 0
  vcpkg remove dhp --classic
  vcpkg install dhp --classic --overlay-ports=$here/vcpkg --binarysource=clear
  consumer -DCMAKE_TOOLCHAIN_FILE="$VCPKG_ROOT/scripts/buildsystems/vcpkg.cmake"
}
check_spack() {
  has spack || return 0
  spack repo list | grep -q '^dhp ' || spack repo add $here/spack
  spack spec dhp+mpi
  spack dev-build -d . "dhp@$(sed -n 's/.*"version": "\(.*\)",/\1/p' $here/vcpkg/dhp/vcpkg.json)~programs"
  consumer -DCMAKE_PREFIX_PATH="$(spack location --first -i dhp)"
}
check_container() {
  has debootstrap && python3 $here/container/steps.py $here/container/Containerfile "$work/container"
}
check_container.cuda() {
  [ -e /usr/local/cuda/bin/nvcc ] || { echo "left out: there is no CUDA toolkit here"; return 0; }
  has debootstrap && python3 $here/container/steps.py $here/container/Containerfile.cuda "$work/container.cuda" \
    ARCHITECTURES=90 --mount /usr/local/cuda
}

for what; do
  echo "=== $what"
  "check_$what"
done
