#!/usr/bin/env bash
# test.sh [OUT]: builds the site in OUT (default: build/site/html), without a warning. Every link and anchor in it must
# exist, and pages must load nothing from the network. A headless Chromium compares the playground with the same file
# compiled by g++, searches, and takes pictures of pages into OUT/../pictures. Exits with 77 if mkdocs, Chromium or
# clang-16 is missing; --links leaves out the browser and the playground, and so needs neither Chromium nor clang-16.
set -eu
browser=yes
[ "${1:-}" != --links ] || { browser=no && shift; }
out=${1:+$(realpath -m -- "$1")}
cd "$(dirname "$0")/../.."
out=${out:-$PWD/build/site/html}
skip() { echo "skipped: $*"; exit 77; }
if [ $browser = yes ]; then
  for program in chromium chromedriver; do
    command -v $program >/dev/null || skip "there is no $program (Debian: chromium, chromium-driver)"
  done
  for file in /usr/lib/llvm-16/bin/clang++ /usr/lib/llvm-16/lib/wasm32-wasi/libc++.a /usr/include/wasm32-wasi; do
    [ -e $file ] || skip "there is no $file (Debian: the packages that docs/site/build.sh names)"
  done
fi
python3 -c 'import venv, ensurepip' 2>/dev/null || skip "Python has no venv (Debian: python3-venv)"

seconds=$SECONDS
say() { echo "$1: $((SECONDS - seconds)) s"; seconds=$SECONDS; }
if ! cmp -s docs/site/requirements.txt build/site/venv/requirements.txt; then
  bash docs/site/build.sh --install || skip "mkdocs could not be installed from PyPI"
  say "install"
fi
bash docs/site/build.sh "$out"
say "build"
build/site/venv/bin/python docs/site/check_links.py "$out"
say "links"
[ $browser = yes ] || exit 0
build/site/venv/bin/python -c 'import selenium' 2>/dev/null ||
  build/site/venv/bin/python -m pip install -q selenium==4.51.0 || skip "selenium could not be installed from PyPI"
g++ -std=c++20 -O1 -Wall -Wextra -Iinclude docs/site/playground/playground.cpp -o build/site/playground
say "the playground as a program"
build/site/venv/bin/python docs/site/check_playground.py "$out" build/site/playground "$(dirname "$out")/pictures"
say "browser"
