#!/usr/bin/env bash
# full_disk.sh PRINTS SAVES: a program that cannot print, or cannot save, exits with status 1.
[ -c /dev/full ] || exit 77
"$1" >/dev/full
[ $? = 1 ] || { echo "$1 >/dev/full does not end with 1"; exit 1; }
TMPDIR=/dev/null "$2"
[ $? = 1 ] || { echo "TMPDIR=/dev/null $2 does not end with 1"; exit 1; }
