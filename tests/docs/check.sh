#!/usr/bin/env bash
# check.sh code|links|options|console ROOT [PROGRAMS]: checks README.md, docs/*.md and docs/lessons/*.md of ROOT.
#   code     each ```cpp block stands, line for line, in the file that <!-- from FILE --> above it names
#   links    each relative link leads to a file
#   options  the tables of docs/command_line.md list the options of train_* --help, with the same defaults;
#            commands in ```bash blocks use existing options
#   console  in each ```console block, a "$ command" prints the lines that follow it
# A line "// ..." in code, or "..." in a console block, stands for omitted lines. PROGRAMS: folder of the built
# examples. Exits with 77 if they are missing.
set -u
what=$1 root=$2 programs=${3:-}
shopt -s nullglob
if [ "$what" = links ]; then cd "$root" || exit 1; root=.; fi
pages=("$root"/README.m[d] "$root"/docs/*.md "$root"/docs/lessons/*.md)  # brackets: empty if the file is missing
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
say() { echo "$*"; wrong=1; }

# Awk: whether lines first..last of part[] stand in whole[], in order, at one more indentation.
stands='
function matches(at, first, last,   pad, i) {
  pad = length(whole[at]) - length(part[first])
  if (pad < 0 || substr(whole[at], pad + 1) != part[first]) return 0
  pad = substr(whole[at], 1, pad)
  if (pad !~ /^ *$/) return 0
  for (i = first + 1; i <= last; ++i)
    if (whole[at + i - first] != (part[i] == "" ? "" : pad part[i])) return 0
  return 1
}
function stands(parts, wholes,   at, first, last) {
  at = 1
  for (first = 1; first <= parts; first = last + 2) {
    if (part[first] ~ /^ *(\/\/ )?\.\.\.$/) { last = first - 1; continue }
    last = first
    while (last < parts && part[last + 1] !~ /^ *(\/\/ )?\.\.\.$/) ++last
    while (at <= wholes && !matches(at, first, last)) ++at
    if (at > wholes) { missing = part[first]; return 0 }
    at += last - first + 1
  }
  return 1
}'

check_code() {
  local count
  for page in "${pages[@]}"; do
    awk -v root="$root" -v page="${page#"$root"/}" "$stands"'
      function bad(line, text) { print page ":" line ": " text; failed = 1 }
      /^<!-- from .* -->$/ { file = $3; next }
      /^```cpp/ { inside = NR; parts = 0; next }
      /^```/ && inside {
        if (file == "") bad(inside, "code without <!-- from FILE --> above it")
        else {
          wholes = 0
          while ((getline line < (root "/" file)) > 0) whole[++wholes] = line
          close(root "/" file)
          if (!stands(parts, wholes)) bad(inside, "this does not stand in " file ": " missing)
        }
        ++blocks; inside = 0; file = ""; next
      }
      inside { part[++parts] = $0 }
      END { if (inside) bad(inside, "the block does not end"); print blocks + 0 > "/dev/stderr"; exit failed }
    ' "$page" 2>"$work/count" || wrong=1
    count=$((${count:-0} + $(cat "$work/count")))
  done
  [ "${count:-0}" -gt 0 ] || say "no page shows any code"
  echo "${count:-0} blocks of code"
}

check_links() {
  local count=0
  for page in "${pages[@]}"; do
    while IFS=: read -r line target; do
      count=$((count + 1))
      [ -e "$(dirname "$page")/$target" ] || say "${page#"$root"/}:$line: there is no $target"
    done < <(awk '
      /^```/ { inside = !inside; next }
      inside { next }
      { rest = $0
        while (match(rest, /\]\([^)]*\)/)) {
          target = substr(rest, RSTART + 2, RLENGTH - 3); rest = substr(rest, RSTART + RLENGTH)
          sub(/#.*/, "", target)
          if (target != "" && target !~ /^[a-z]+:/) print NR ":" target
        } }' "$page")
  done
  [ "$count" -gt 0 ] || say "no page has a link"
  # Files that these two pages name must exist: at the given path, or anywhere if only a name is given.
  for page in tests/README.md docs/README.md; do
    [ -e "$root/$page" ] || continue
    grep -oE '`[a-z0-9_{},/]+\.(cpp|py|sh|[hic]pp|cmake)`' "$root/$page" | tr -d '`' | sort -u | while read -r name; do
      case $name in
        */*) eval "ls -- $root/tests/$name" >/dev/null 2>&1 || [ -e "$root/$name" ] || [ -e "$root/include/dhp/$name" ] || [ -e "$root/examples/$name" ] ;;
        *) find "$root/tests" "$root/examples" "$root/include" "$root/docs" -name "$name" | grep -q . ;;
      esac || echo "$page: there is no $name"
    done
  done >"$work/tests"
  # The last column of the walk's table names functions, which must be in the files linked before them in the row. The
  # walk names each file once.
  awk -F'|' '/^\| step \| where \|/ { inside = 1 } !/^\|/ { inside = 0 } inside { print $3 "|" $4 }' "$root/docs/README.md" 2>/dev/null |
    while IFS='|' read -r where functions; do
      files=$(grep -oE '\.\./include/[a-z0-9_/.]+' <<<"$where" | sed "s|^\.\.|$root|")
      for function in $(grep -oE '`[a-z_0-9]+`' <<<"$functions" | tr -d '`'); do
        sed 's|//.*||' $files | grep -qE "\b$function\(" || echo "docs/README.md: $function() is not in" $files
      done
      echo "$files" >>"$work/walk"
    done >>"$work/tests"
  if [ -s "$work/walk" ]; then
    grep . "$work/walk" | sort | uniq -d | sed "s|^$root/|docs/README.md: the walk passes twice |" >>"$work/tests"
  fi
  if [ -s "$work/tests" ]; then cat "$work/tests"; wrong=1; fi
  echo "$count links"
}

need_programs() {
  for program in train_bert train_gpt train_resnet50; do
    [ -x "$programs/$program" ] || { echo "skipped: $program is not built"; exit 77; }
  done
}

check_options() {
  need_programs
  local page=$root/docs/command_line.md program
  for program in train_bert train_gpt train_resnet50; do
    "$programs/$program" --help >"$work/help"
    grep -oE '^ +(-h,)?--[a-z0-9-]+' "$work/help" | grep -oE -- '--.*' | sort >"$work/help.$program"
    # "--option TYPE=default": the default must stand in the table's row.
    sed -nE 's/^  (--[a-z0-9-]+) [^ ]([^=]*[^ =])?=([^ =]+)( .*)?$/\1 \3/p' "$work/help" |
      while read -r option value; do
        grep -E "^\| \`$option( |\`)" "$page" | grep -qF "\`$value\`" ||
          echo "docs/command_line.md: $program $option has the default $value"
      done >"$work/defaults"
    if [ -s "$work/defaults" ]; then cat "$work/defaults"; wrong=1; fi
  done
  # Options of a section's tables; a section is named by its heading.
  listed() {
    awk -v section="$1" '/^## / { inside = $0 == "## " section }
      inside && /^\| `--/ { match($0, /--[a-z0-9-]+/); print substr($0, RSTART, RLENGTH) }' "$page" | sort
  }
  compare() {
    diff <(listed "$1") - >"$work/diff" ||
      { say "docs/command_line.md, \"$1\": < is not in --help, > is missing"; grep '^[<>]' "$work/diff"; }
  }
  local b=$work/help.train_bert g=$work/help.train_gpt r=$work/help.train_resnet50
  compare "All trainers" < <(comm -12 "$b" "$r" | comm -12 - "$g")
  compare "train_bert and train_gpt" < <(comm -12 "$b" "$g" | comm -23 - "$r")
  compare "train_bert alone" < <(comm -23 "$b" "$g")
  compare "train_gpt alone" < <(comm -13 "$b" "$g")
  compare "train_resnet50 alone" < <(comm -13 "$b" "$r")
  # Commands in ```bash blocks, which are not run.
  for program in train_bert train_gpt train_resnet50; do
    for page in "${pages[@]}"; do
      awk '/^```/ { inside = /^```bash/ } inside' "$page" | grep -w "$program" |
        grep -oE -- ' --[a-z0-9-]+' | tr -d ' ' | sort -u | comm -23 - "$work/help.$program" |
        sed "s|^|${page#"$root"/}: $program has no option |"
    done
  done >"$work/unknown"
  if [ -s "$work/unknown" ]; then cat "$work/unknown"; wrong=1; fi
  echo "$(sort -u "$b" "$g" "$r" | wc -l) options"
}

check_console() {
  need_programs
  local count=0 command page expected
  PATH=$(cd "$programs" && pwd):$PATH
  # The order of the ranks' lines, and the sign of a NaN, vary from run to run.
  same_ranks() { sed -E 's/rank [0-9]+:/rank N:/g; s/-nan/nan/g'; }
  for page in "${pages[@]}"; do
    rm -rf "$work/console" && mkdir -p "$work/console/cwd" && ln -s "$(cd "$root" && pwd)/examples" "$work/console/cwd"
    awk -v to="$work/console" '
      /^```console/ { inside = 1; next }
      /^```/ { inside = 0; next }
      inside && /^\$ / {
        ++n; print substr($0, 3) > sprintf("%s/%03d.command", to, n)
        printf "%d\n", NR > sprintf("%s/%03d.line", to, n); next }
      inside && n { print > sprintf("%s/%03d.expected", to, n) }' "$page"
    for command in "$work"/console/*.command; do
      count=$((count + 1))
      (cd "$work/console/cwd" && timeout 600 bash "$command") >"${command%command}got" 2>&1 </dev/null
      expected=${command%command}expected
      [ -e "$expected" ] || continue
      awk "$stands"'FNR == NR { part[++parts] = $0; next } { whole[++wholes] = $0 }
        END { exit !stands(parts, wholes) }' \
        <(same_ranks <"$expected") <(same_ranks <"${command%command}got") ||
        { say "${page#"$root"/}:$(cat "${command%command}line"): $(cat "$command") prints"
          tail -n 5 "${command%command}got"; }
    done
  done
  [ "$count" -gt 0 ] || say "no page shows a command"
  echo "$count commands"
}

case $what in
  code | links | options | console) "check_$what" ;;
  *) say "check.sh: code, links, options or console, not $what" ;;
esac
exit $wrong
