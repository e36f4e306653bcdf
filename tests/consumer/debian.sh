#!/usr/bin/env bash
# debian.sh SOURCE BUILD SCRATCH: installs cpack's packages and their dependencies in an empty Debian. The programs must
# run there, and a user's project must find the headers, compile and run.
set -eu
source=$1 build=$2 scratch=$3
root=$scratch/root
[ -x "$build/examples/train_bert" ] || { echo "skipped: the programs are not built"; exit 77; }
for tool in dpkg-shlibdeps file; do
  command -v $tool >/dev/null || { echo "skipped: cpack needs $tool (Debian: dpkg-dev file)"; exit 77; }
done
"$source/.ci/root.sh" remove "$root"
rm -rf "$scratch"
mkdir -p "$scratch"
"$source/.ci/root.sh" make "$root"
trap '"$source/.ci/root.sh" remove "$root"' EXIT

(umask 077; cpack --config "$build/CPackConfig.cmake" -B "$scratch/packages")
if dpkg-deb -c "$scratch"/packages/libdhp-dev_*_all.deb | grep ^drwx---; then
  echo "These folders of the package are for root alone"
  exit 1
fi
version=$(dpkg-deb -f "$scratch"/packages/libdhp-dev_*_all.deb Version)
for file in CITATION.cff cmake/packages/vcpkg/dhp/vcpkg.json; do
  grep -qE "^ *\"?version\"?: \"?${version%-1}\b" "$source/$file" || { echo "$file is not of version $version"; exit 1; }
done
mkdir -p "$root/root"
cp -r "$scratch"/packages/*.deb "$source/tests/consumer" "$root/root/"
# shellcheck disable=SC2016
"$source/.ci/root.sh" run "$root" bash -euc '
  cd /root
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ./*.deb cmake ninja-build ccache
  for program in $(dpkg -L dhp-tools | grep ^/usr/bin/); do "$program" --help >help; done
  train_bert --steps 2 --data-parallel 2
  cmake -S consumer -B build -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  cmake --build build
  build/plain
  build/cpu
  apt-get purge -y -q libdhp-dev dhp-tools
  [ -z "$(find /usr -path "*dhp*")" ] || { echo "The packages leave files behind"; exit 1; }'
