#!/usr/bin/env bash
# collect_headers.sh FOLDER [INCLUDE_FOLDER]: copies doctest, CLI11, nlohmann json and libcrypto (15 MB, from Debian's
# doctest-dev, libcli11-dev, nlohmann-json3-dev and libssl-dev) for a machine that lacks them and has no network.
set -eu
to=$1 from=${2:-/usr/include}
mkdir -p "$to/include" "$to/lib"
for library in doctest CLI nlohmann openssl; do
  [ -d "$from/$library" ] || { echo "there is no $from/$library" >&2; exit 1; }
  cp -r "$from/$library" "$to/include/"
done
# Debian keeps processor-specific headers in a folder of their own.
cp "$from/$(uname -m)-linux-gnu/openssl/"* "$to/include/openssl/"
cp "${from%include}lib/$(uname -m)-linux-gnu/libcrypto.a" "$to/lib/"
