#!/usr/bin/env bash
# alone.sh CMAKE INCLUDE_DIR BUILD_DIR CONFIGURED: each header compiles alone. Which other header it starts from was
# decided when the file CONFIGURED was written, and is decided anew if a header is younger.
set -eu
[ -z "$(find "$2" -name '*.hpp' -newer "$4" -print -quit)" ] || "$1" "$3"
exec "$1" --build "$3" --target headers_alone
