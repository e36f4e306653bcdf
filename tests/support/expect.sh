# expect STATUS LINE COMMAND...: sets status=1 unless the command exits with STATUS and prints LINE as part of a line.
status=0
expect() {
  local wanted=$1 line=$2 said got
  shift 2
  said=$("$@" 2>&1)
  got=$?
  if [ "$got" -ne "$wanted" ] || ! grep -qF -- "$line" <<<"$said"; then
    echo "expected status $wanted and '$line' of '$*', got $got and"
    echo "$said"
    status=1
  fi
}
