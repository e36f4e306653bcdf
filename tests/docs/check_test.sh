#!/usr/bin/env bash
# check_test.sh SCRATCH: check.sh accepts a correct page and reports each kind of mistake.
set -eu
check=$(cd "$(dirname "$0")" && pwd)/check.sh
rm -rf "$1" && mkdir -p "$1/docs" "$1/programs" && cd "$1"
printf 'int main() {\n  first();\n  second();\n\n  third();\n}\n' >code.cpp
for program in train_bert train_gpt train_resnet50; do
  printf '#!/bin/sh\nif [ "$1" = --help ]; then printf "  -h,--help   Help\\n  --steps INT=3   Steps\\n"\n' >programs/$program
  printf 'else echo one; echo "error: rank $$: two"; echo three; fi\n' >>programs/$program
  chmod +x programs/$program
done
page() { # makes a correct page, or one with an edit
  printf '[code](../code.cpp)\n<!-- from code.cpp -->\n```cpp\nfirst();\n// ...\nthird();\n```\n' >docs/page.md
  printf '```console\n$ train_bert --steps 1\n...\nerror: rank 0: two\n```\n' >>docs/page.md
  printf '```bash\nbuild/train_bert --steps 1\n```\n' >>docs/page.md
  printf '## All trainers\n| `--help` | | |\n| `--steps N` | `3` | |\n' >docs/command_line.md
  for edit in "$@"; do sed -i "$edit" docs/page.md docs/command_line.md; done
}
right() { "$check" "$1" . programs >log || { echo "$1 refuses a right page:"; cat log; exit 1; }; }
wrong() {
  local what=$1
  shift
  page "$@"
  ! "$check" "$what" . programs >log || { echo "$what does not see: $*"; exit 1; }
}
page
for what in code links options console; do right $what; done
wrong code 's/first()/fist()/'
wrong code 's/^third/fourth/'
wrong code '/^first/d;s/^third();/third();\nfirst();/'
wrong code '/from code/d'
wrong code 's/from code/from no_code/'
wrong links 's/\.\.\/code/code/'
wrong options 's/--steps N/--stops N/'
wrong options '/--steps N/d'
wrong options 's/`3`/`4`/'
wrong options 's/All trainers/train_bert alone/'
wrong options 's/build.train_bert --steps/build\/train_bert --stops/'
wrong console 's/: two/: four/'
wrong console 's/^\.\.\./three\n.../'
page
rm programs/train_bert
code=0
"$check" options . programs >log || code=$?
[ $code -eq 77 ] || { echo "a missing program is not a skipped check but $code"; exit 1; }
