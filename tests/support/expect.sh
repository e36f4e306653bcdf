# expect STATUS LINE COMMAND...: the command must exit with STATUS and print LINE as (part of) a line; else status=1.
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
