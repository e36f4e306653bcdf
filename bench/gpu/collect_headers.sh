#!/usr/bin/env bash
# collect_headers.sh FOLDER [INCLUDE_FOLDER]: copies doctest, CLI11 and nlohmann json (2 MB of headers, of Debian's
# packages doctest-dev, libcli11-dev and nlohmann-json3-dev) for a machine that has neither them nor a network.
set -eu
to=$1 from=${2:-/usr/include}
mkdir -p "$to/include"
for library in doctest CLI nlohmann; do
  [ -d "$from/$library" ] || { echo "there is no $from/$library" >&2; exit 1; }
  cp -r "$from/$library" "$to/include/"
done
