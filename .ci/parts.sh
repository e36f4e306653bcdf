# Sourced by scripts that run in parts: `part "what it is" command...` runs the command, remembers
# how long it took, and ends the script with a clear sentence if it fails.
parts_summary=""
parts_start=$SECONDS
part() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n=== %s\n' "$name"
  "$@" || status=$?
  local line
  line=$(printf '%5d s  %s' $((SECONDS - start)) "$name")
  parts_summary+="$line"$'\n'
  if [ "$status" -ne 0 ]; then
    printf '\n%sStopped: "%s" failed (status %d): %s\n' "$parts_summary" "$name" "$status" "$*" >&2
    exit 1
  fi
}
parts_done() { printf '\n%s%5d s  in all\n%s\n' "$parts_summary" $((SECONDS - parts_start)) "$1"; }
