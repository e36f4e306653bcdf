#!/usr/bin/env bash
# refused.sh INCLUDE_DIR COMPILER: if a compiler flag or a macro prevents the use of dhp, each entry header must report
# it in one sentence before all other errors.
set -u
cd "$1" || exit 1
wrong=0
refused() {  # header, words, code before it, options
  local said
  said=$(printf '%s\n#include <%s>\n' "$3" "$1" | "$compiler" -I. -x c++ -fsyntax-only "${@:4}" - 2>&1)
  if [ "$(grep -c 'error: #error\|error: "' <<<"$said")" != 1 ] || [ "$(grep -c 'error:' <<<"$said")" != 2 ] ||
    ! grep 'error:' <<<"$said" | head -n 1 | grep -qF -- "$2"; then
    echo "$1 with ${*:4} $3 is not refused with '$2' alone:" "$(head -c 400 <<<"$said")"
    wrong=1
  fi
}
compiler=$2
for header in dhp/*.hpp dhp/cuda.cuh; do
  refused "$header" -std=c++20 '' -std=c++17
  refused "$header" -ffast-math '' -std=c++20 -ffast-math
done
refused dhp/cpu.hpp -Ofast '' -std=c++20 -Ofast
# Newer versions of g++ announce this part of -ffast-math by a macro; clang++ does not.
if "$compiler" -funsafe-math-optimizations -dM -E -x c++ - </dev/null | grep -q __ASSOCIATIVE_MATH__; then
  refused dhp/cpu.hpp -funsafe '' -std=c++20 -funsafe-math-optimizations
fi
# As g++ 10, which has no <source_location>, and an early number of C++20; clang++ cannot read its library with that.
older=$(mktemp -d)
trap 'rm -rf "$older"' EXIT
: >"$older/version"
early=(-U__cplusplus -D__cplusplus=201709L)
"$compiler" -dM -E -x c++ - </dev/null | grep -q __clang__ && early=()
refused dhp/cpu.hpp 'g++ 11' '' -std=c++20 -isystem "$older" "${early[@]}"
refused dhp/cpu.hpp 64-bit '' -std=c++20 -U__SIZEOF_INT128__
refused dhp/cpu.hpp little-endian '' -std=c++20 -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__
refused dhp/cpu.hpp -fno-exceptions '' -std=c++20 -fno-exceptions
refused dhp/cpu.hpp -fno-rtti '' -std=c++20 -fno-rtti
for name in check fail concat min max isnan isfinite; do
  refused dhp/cpu.hpp "#undef $name" "#include <cmath>
#define $name(x) x" -std=c++20
done
# Common macros of other libraries must not disturb dhp, nor must macros that <cmath> undefines.
printf '%s\n' '#define min(a, b) a' '#define slots' '#define signals public' '#define emit' '#define None 0L' \
  '#define Bool int' '#define Status int' '#define I 1' '#include <sys/sysmacros.h>' '#include <termios.h>' \
  '#include <complex.h>' '#include <dhp/cpu.hpp>' 'const auto said = dhp::concat(true);' |
  "$compiler" -I. -x c++ -fsyntax-only -std=c++20 -march=x86-64-v3 - || wrong=1
exit $wrong
