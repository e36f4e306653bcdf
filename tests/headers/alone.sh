#!/usr/bin/env bash
# alone.sh CMAKE INCLUDE_DIR BUILD_DIR CONFIGURED: compiles each header alone. First configures again if a header is
# newer than the file CONFIGURED, because the choice of parsed headers depends on includes.
set -eu
[ -z "$(find "$2" -name '*.hpp' -newer "$4" -print -quit)" ] || "$1" "$3"
exec "$1" --build "$3" --target headers_alone
