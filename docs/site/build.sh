#!/usr/bin/env bash
# build.sh [OUT]: builds the site from README.md, docs/, examples/lessons and the headers in the folder OUT (default:
# build/site/html). Its pages can be read from the disk, without a server or a network. Installs missing packages from
# PyPI in build/site/venv; --install does only this. The playground needs Debian's clang-16, lld-16,
# libc++-16-dev-wasm32, libc++abi-16-dev-wasm32, libclang-rt-16-dev-wasm32 and wasi-libc; without them its page says so.
set -eu
out=${1:+$(realpath -m -- "$1")}
cd "$(dirname "$0")/../.."
out=${out:-$PWD/build/site/html}
work=$PWD/build/site
export PYTHONUTF8=1
mkdir -p "$work"

if ! cmp -s docs/site/requirements.txt "$work/venv/requirements.txt"; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install -q -r docs/site/requirements.txt
  cp docs/site/requirements.txt "$work/venv"
fi
[ "${1:-}" != --install ] || exit 0
"$work/venv/bin/python" docs/site/generate.py . "$work/pages" "$work/mkdocs.yml"

llvm=/usr/lib/llvm-16
wasm=$work/playground.wasm
: >"$wasm"
if [ -x $llvm/bin/clang++ ] && [ -e $llvm/lib/wasm32-wasi/libc++.a ] && [ -e /usr/include/wasm32-wasi ]; then
  # -fexceptions: a throw is a call of __cxa_throw, which playground.cpp has; nothing is caught.
  $llvm/bin/clang++ --target=wasm32-wasi -std=c++20 -Oz -fexceptions -fvisibility=hidden -Iinclude \
    -stdlib=libc++ -isystem $llvm/include/wasm32-wasi/c++/v1 -isystem /usr/include/wasm32-wasi \
    -mexec-model=reactor -L$llvm/lib/wasm32-wasi -Wl,--gc-sections,--strip-all \
    docs/site/playground/playground.cpp -o "$wasm"
else
  echo "build.sh: the playground is left out: clang-16 or its libraries for WebAssembly are not installed" >&2
fi
# Puts the program into a script, because a page from the disk may not fetch files.
{ printf 'const dhpPlayground = "'; base64 -w 0 "$wasm"; echo '";'; } >"$work/pages/assets/playground_wasm.js"

NO_MKDOCS_2_WARNING=1 "$work/venv/bin/python" -m mkdocs build -q --strict -f "$work/mkdocs.yml" -d "$out"
echo "$out/index.html"
