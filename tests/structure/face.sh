#!/usr/bin/env bash
# face.sh SOURCE: the public headers. Each folder has an umbrella header, which includes headers of its folder, and
# docs/headers.md links those and no others.
set -u
cd "$1" || exit 1
wrong=0
say() { echo "$*"; wrong=1; }
for folder in core device tensor ops comm data nn optim parallel train; do
  umbrella=include/dhp/$folder.hpp
  [ -e "$umbrella" ] || { say "there is no $umbrella"; continue; }
  included=$(sed -n "s|^#include <dhp/$folder/\(.*\)>$|\1|p" "$umbrella" | sort)
  [ "$(grep -c '^#include' "$umbrella")" = "$(wc -l <<<"$included")" ] || say "$umbrella includes headers of other folders"
  linked=$(grep -o "(../include/dhp/$folder/[^)]*)" docs/headers.md | sed "s|(../include/dhp/$folder/||; s|)$||" | sort)
  [ "$included" = "$linked" ] || say "docs/headers.md and $umbrella do not agree: $(diff <(echo "$included") <(echo "$linked"))"
done
for file in $(git ls-files 'include/dhp/*.hpp' 2>/dev/null); do
  ! grep -q 'namespace detail' "$file" || [ "$file" = include/dhp/eigen.hpp ] ||
    say "$file: what is not public stands in the namespace of its folder, not in detail"
done
exit $wrong
