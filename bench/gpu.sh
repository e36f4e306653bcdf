#!/usr/bin/env bash
# Builds and tests for this machine's GPU and measures against PyTorch; needs no network:
#   bench/gpu.sh CALL|STEP... [--output FOLDER] [--only CASE]... [--rounds N] [--merge REPORT.json] [--dry-run]
#   bench/gpu.sh --rehearse FOLDER [--trainers FOLDER]
# A call is a list of steps that ends within ten minutes. The calls, the most informative first:
# build      versions configure libraries library_tests resnet_steps rest
#            the libraries' versions; their tests and 40 steps of ResNet-50 in fp16; builds tests in the time left
# check      libraries bert_steps rest tests
#            30 steps of BERT-large, 512 tokens, with and without dropout; all tests but those of several ranks
# compare    libraries machine resnet bert
#            both models against eager PyTorch (channels_last, mixed precision)
# processes  libraries rest nccl ranks elastic features sanitize
#            NCCL among 2 and 3 processes on one GPU; BERT in layouts of up to 8; an elastic job of 3 that loses one;
#            ZeRO, schedules, a decoder and other parallel features; compute-sanitizer over the single ops
# more       libraries rest machine compile_resnet compile_bert packed graphs overhead others recorded
#            against torch.compile(max-autotune); packed against padded batches; CUDA graphs; a world of one rank; the
#            other sizes and types against eager PyTorch; 2 ranks with recorded steps
# A step takes at most its own time limit and the time left of its call. Steps without time are reported as "not run";
# name them in another call. DHP_CALL_SECONDS: the time of a call (570). Earlier builds and compilations are reused.
# Each step rewrites report.md, report.json and logs.tgz in the output folder (build/gpu/report) from all steps so far.
# --only, --rounds: cases and rounds of compare.py, in comparisons and steps. --merge adds the steps of an earlier
# report. build/headers holds doctest, CLI11, nlohmann json, OpenSSL's headers and libcrypto where the machine has none
# (bench/gpu/collect_headers.sh build/headers fills it); copy it to the machine.
# --dry-run runs nothing on a GPU, but checks that every command, file, option and target exists. With PyTorch and CPU
# trainers in --trainers (build/release/examples) it also tries the comparisons on the CPU.
# --rehearse copies the files that git tracks, and build/headers, into an empty folder and runs every call there, dry.
# PYTHON names the interpreter with PyTorch; DHP_COMMIT the commit, if there is no git.
set -u
cd "$(dirname "$0")/.." || exit 1
work=build/gpu headers=build/headers
merge='' dry='' out='' trainers=build/release/examples rehearsal=''
only=() rounds=()
declare -A calls=(
  [build]="versions configure libraries library_tests resnet_steps rest"
  [check]="libraries bert_steps rest tests"
  [compare]="libraries machine resnet bert"
  [processes]="libraries rest nccl ranks elastic features sanitize"
  [more]="libraries rest machine compile_resnet compile_bert packed graphs overhead others recorded")
order=(build check compare processes more)
# The time limit of each step, in seconds.
declare -A limits=([versions]=30 [configure]=180 [libraries]=420 [library_tests]=180 [resnet_steps]=90 [rest]=400
  [bert_steps]=150 [tests]=400 [machine]=90 [resnet]=200 [bert]=270 [nccl]=200 [ranks]=200 [elastic]=150 [features]=200 [sanitize]=300
  [recorded]=200 [compile_resnet]=300 [compile_bert]=300 [packed]=120 [graphs]=150 [overhead]=100 [others]=400)
total=${DHP_CALL_SECONDS:-570}
steps=()
usage() { sed -n '2,/^set -u/p' "$0" | grep '^#' >&2; echo "bench/gpu.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --output | --only | --rounds | --merge | --trainers | --rehearse) [ $# -gt 1 ] || usage "$1 needs a value" ;;&
    --dry-run) dry=yes ;;
    --output) out=$2; shift ;;
    --only) only+=(--only "$2"); shift ;;
    --rounds) rounds=(--rounds "$2"); shift ;;
    --merge) merge=$2; shift ;;
    --trainers) trainers=$2; shift ;;
    --rehearse) rehearsal=$2; shift ;;
    *)
      if [ -n "${calls[$1]:-}" ]; then read -ra of_call <<<"${calls[$1]}" && steps+=("${of_call[@]}")
      elif [ -n "${limits[$1]:-}" ]; then steps+=("$1")
      else usage "unknown: $1"; fi ;;
  esac
  shift
done
python=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer

# --- Files that the machine may lack.
carried() {  # checks that the machine or build/headers has all headers; names those missing
  local name include lacking=()
  include=("$headers/include" /usr/include /usr/local/include)
  has() { local folder; for folder in "${include[@]}"; do [ ! -e "$folder/$1" ] || return 0; done; return 1; }
  for name in doctest/doctest.h CLI/CLI.hpp nlohmann/json.hpp openssl/evp.h openssl/opensslconf.h; do
    # Debian keeps processor-specific headers in a folder of their own.
    has "$name" || has "$(uname -m)-linux-gnu/$name" || lacking+=("$name")
  done
  [ -e "$headers/lib/libcrypto.a" ] || ldconfig -p 2>/dev/null | grep -q 'libcrypto\.so$' ||
    [ -e "/usr/lib/$(uname -m)-linux-gnu/libcrypto.a" ] || lacking+=(libcrypto)
  [ ${#lacking[@]} -gt 0 ] || return 0
  echo "not here: ${lacking[*]}; run bench/gpu/collect_headers.sh $headers on a machine that has them, and bring it along"
  return 1
}

if [ -n "$rehearsal" ]; then
  [ -z "$(ls -A "$rehearsal" 2>/dev/null)" ] || usage "$rehearsal is not empty"
  mkdir -p "$rehearsal/tree/$headers" && rehearsal=$(cd "$rehearsal" && pwd) || exit 1
  git ls-files -co --exclude-standard -z | tar cf - --null -T - | tar xf - -C "$rehearsal/tree"
  trainers=$(cd "$trainers" 2>/dev/null && pwd || echo "$trainers")
  if [ -e "$headers/include" ]; then cp -r "$headers/." "$rehearsal/tree/$headers"
  else bash bench/gpu/collect_headers.sh "$rehearsal/tree/$headers"; fi || exit 1
  printf 'to bring along: %d MiB of the tree, %d MiB in %s\n' \
    $(($(git ls-files -co --exclude-standard -z | du -c --apparent-size -B1M --files0-from=- | tail -n 1 | cut -f1))) \
    "$(du -s --apparent-size -B1M "$rehearsal/tree/$headers" | cut -f1)" "$headers"
  status=0
  for call in "${order[@]}"; do
    DHP_COMMIT=$(git rev-parse HEAD) bash "$rehearsal/tree/bench/gpu.sh" "$call" --dry-run --output "$rehearsal/$call" \
      --trainers "$trainers" || status=1
  done
  [ $status -ne 0 ] || echo "rehearsal: every command, file, option and target of ours exists"
  exit $status
fi
[ ${#steps[@]} -gt 0 ] || usage "name a call (${order[*]}) or steps"
[ -z "$dry" ] || work=build/gpu_dry_run
out=${out:-$work/report}
mkdir -p "$work" "$out"
work_path=$(cd "$work" && pwd)

# --- Lines of each step in the report and in the final table.
table=()
begin() { step=$1 log=$work/$1.log started=$SECONDS failed=0; : >"$log"; rm -f "$work/$1.json"; }
finish() {
  local result="done" seconds=$((SECONDS - started))
  [ -z "$dry" ] || result="not run"
  [ $failed -eq 0 ] || result="FAILED, see $log"
  [ -n "$dry" ] || "$python" bench/gpu/report.py part "$work" "$step" --seconds $seconds --failed $failed
  report
  table+=("$(printf '%-15s %4d s of %3d  %s' "$step" $seconds "${limits[$step]}" "$result")")
  echo "${table[-1]}"
}
report() {
  "$python" bench/gpu/report.py write "$work" "$out" --commit "${DHP_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}" \
    ${merge:+--merge "$merge"} || failed=1
  tar czf "$out/logs.tgz" -C "$work" --exclude=./report --exclude=./inductor .
}
# The seconds left of the step and of the call, whichever is less.
left() {
  local of_step=$((limits[$step] - SECONDS + started)) of_call=$((total - SECONDS))
  echo $((of_step < of_call ? of_step : of_call))
}
# limited COMMAND...: runs it for at most the seconds left; its output goes to the log.
limited() {
  local seconds status=0
  seconds=$(left)
  [ "$seconds" -gt 0 ] || seconds=1
  if [ -n "$dry" ]; then exists "$@"; return; fi
  printf '\n$ %s\n' "$*" >>"$log"
  timeout --kill-after=10 "$seconds" "$@" >>"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    failed=1
    if [ $status -eq 124 ]; then echo "not done after $seconds s" | tee -a "$log"; else tail -n 15 "$log"; fi
  fi
  return $status
}

# --- --dry-run: the repository's files must exist; missing programs of others are only listed.
missing() { echo "  missing: $*"; failed=1; }
options_of() {  # options_of HELP OPTION...
  local text=$1 option
  shift
  for option in "$@"; do
    case $option in
      --*) grep -qE -- "(^|[^a-z-])${option%%=*}([^a-z-]|$)" <<<"$text" || missing "option $option" ;;
    esac
  done
}
exists() {
  local command=$1 word
  echo "  $*"
  case $command in
    "$python")
      [ -e "$2" ] || { missing "$2"; return; }
      # Scripts that load PyTorch have few options; the CPU trial below covers them.
      [ "$2" = bench/gpu/machine.py ] || options_of "$("$python" "$2" --help 2>&1)" "${@:3}" ;;
    build/cuda/*) grep -qs "${command##*/}" tests/CMakeLists.txt cmake/testing.cmake || missing "$command" ;;
    */*) [ -x "$command" ] || missing "$command" ;;
    cmake | ctest) options_of "$("$command" --help; "$command" --help-full 2>/dev/null)" "${@:2}" ;;
    *) command -v "$command" >/dev/null || echo "  not on this machine: $command" ;;
  esac
  for word in "${@:2}"; do
    case $word in bench/* | tests/*.sh) [ -e "$word" ] || missing "$word" ;; esac
  done
}
# has_options SCRIPT ARGUMENT...: whether the CPU trainers accept the script's options.
has_options() {
  if [ ! -x "$trainers/train_bert" ] || [ ! -x "$trainers/train_resnet50" ]; then
    echo "  not tried: there are no trainers in $trainers"
    return 1
  fi
  "$python" "$@" --dry-run >>"$log" 2>&1 || { tail -n 5 "$log"; failed=1; return 1; }
}
tried() { tail -n 1 "$log" | sed 's/^/  tried on the CPU: /'; }

# --- Steps.
step_versions() {
  local command
  carried >>"$log" || { tail -n 1 "$log"; failed=1; }
  for command in nvidia-smi nvcc cmake ninja "$python"; do
    command -v "$command" >/dev/null || { echo "  not on this machine: $command"; continue; }
    [ "$command" = nvidia-smi ] || set -- --version
    { echo "\$ $command $*"; timeout 20 "$command" "$@"; } >>"$log" 2>&1
  done
}
step_configure() {
  local configure=(cmake --preset cuda -DDHP_BENCH=ON "-DDHP_WHEELS_PYTHON=$(command -v "$python")")
  [ ! -e "$headers" ] || configure+=("-DCMAKE_PREFIX_PATH=$PWD/$headers")
  command -v ninja >/dev/null || configure+=(-G "Unix Makefiles")
  limited "${configure[@]}"
  [ -n "$dry" ] || return
  # Configuring needs nvcc but no GPU.
  command -v nvcc >/dev/null || { echo "  not configured: there is no nvcc"; return; }
  "${configure[@]}" >>"$log" 2>&1 || { tail -n 5 "$log"; missing "a tree that can be configured"; }
}
build() {  # build [TARGET...]: continues an interrupted build
  local command=(cmake --build build/cuda -j "$(nproc)") keep_going=(-- -k)
  [ -n "$dry" ] || [ -e build/cuda/CMakeCache.txt ] || step_configure || return
  [ $# -eq 0 ] || command+=(--target "$@")
  if [ ! -e build/cuda/build.ninja ]; then limited "${command[@]}" "${keep_going[@]}"; return; fi
  limited "${command[@]}" "${keep_going[@]}" 0
  if [ -n "$dry" ] && [ $# -gt 0 ]; then
    ninja -C build/cuda -t query "$@" >>"$log" 2>&1 || { tail -n 1 "$log"; missing "a target"; }
  fi
}
step_libraries() { build gpu_present train_resnet50 train_bert test_cuda_libraries; }
step_rest() { build; }
step_library_tests() {
  keep_choices  # so that a retry need not time the choices again
  limited build/cuda/tests/gpu_present || return
  limited ctest --test-dir build/cuda -j 4 -R "^cuda\.libraries" --output-on-failure --timeout 170 --no-tests=error
}
step_tests() {
  limited build/cuda/tests/gpu_present || return
  limited ctest --test-dir build/cuda -j 4 -LE "headers|consumer" -E "^cuda.nccl_ranks$" --output-on-failure --timeout 200
  [ -n "$dry" ] || "$python" bench/gpu/report.py tests "$log" "$work/tests.json" \
    --details build/cuda/Testing/Temporary/LastTest.log || failed=1
}
step_machine() {  # measures peak rates
  if [ -n "$dry" ] || [ ! -e "$work/machine.json" ]; then limited "$python" bench/gpu/machine.py "$work/machine.json"; fi
}
step_nccl() { limited tests/cuda/nccl_ranks.sh build/cuda/tests/test_comm_libraries; }
ranks() {  # ranks MODEL
  limited "$python" bench/gpu/ranks.py tests/cuda/ranks.sh build/cuda/examples/train_bert \
    build/cuda/examples/train_resnet50 "$work/$step.json" --model "$1" --seconds $(($(left) - 10))
  [ -z "$dry" ] ||
    has_options bench/gpu/ranks.py tests/cuda/ranks.sh "$trainers/train_bert" "$trainers/train_resnet50" - --model "$1"
}
# Keeps compiled plans and timings for later processes and steps.
keep_choices() { export DHP_PLAN_CACHE=$work_path/plans TORCHINDUCTOR_CACHE_DIR=$work_path/inductor; }
compare() {  # compare OPTION... -- CASE...: runs the cases of --only instead, if given
  local options=() cases=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  for case in "${@:2}"; do cases+=(--only "$case"); done
  [ ${#only[@]} -eq 0 ] || cases=("${only[@]}")
  cases+=("${rounds[@]}" "${options[@]}")
  keep_choices
  limited "$python" bench/gpu/compare.py "$work/$step.json" --machine "$work/machine.json" \
    --trainers build/cuda/examples "${cases[@]}"
  [ -n "$dry" ] || return
  # A dry run tries the same script with small models on the CPU.
  has_options bench/gpu/compare.py "$work/$step.json" --trainers "$trainers" "${cases[@]}" || return
  if ! [[ " ${options[*]} " = *" --alone "* ]] && ! "$python" -c 'import torch; assert torch.__version__ >= "2"' 2>/dev/null; then
    echo "  not tried: $python has no PyTorch 2"
    return
  fi
  [[ " ${options[*]} " = *" --alone "* ]] || [ -e "$work/machine.json" ] ||
    "$python" bench/gpu/machine.py "$work/machine.json" --tiny || failed=1
  "$python" bench/gpu/compare.py "$work/$step.json" --machine "$work/machine.json" --trainers "$trainers" \
    "${cases[@]}" --tiny --rounds 2 --steps 2 --warm-up 1 >>"$log" 2>&1 || failed=1
  tried
}
step_resnet_steps() { compare --alone --steps 40 -- resnet50_fp16; }
step_bert_steps() { compare --alone --steps 30 -- bert_large_512 bert_large_512_no_dropout; }
step_resnet() { compare -- resnet50_fp16; }
step_bert() { compare -- bert_large_512; }
step_compile_resnet() { compare --compiled -- resnet50_fp16; }
step_compile_bert() { compare --compiled -- bert_large_512; }
step_others() { compare -- resnet50_bf16 bert_large_512_no_dropout bert_large_128 bert_base_512 bert_base_128; }
figures() {  # figures KIND
  keep_choices
  limited "$python" bench/gpu/figures.py "$1" "$work/$1.json" --trainers build/cuda/examples \
    --program build/cuda/bench/bench_world_of_one "${rounds[@]}"
  [ -n "$dry" ] || return
  has_options bench/gpu/figures.py "$1" "$work/$1.json" --trainers "$trainers" || return
  local program=$trainers/../bench/bench_world_of_one
  [ "$1" != overhead ] || [ -x "$program" ] || { echo "  not tried: there is no $program"; return; }
  "$python" bench/gpu/figures.py "$1" "$work/$1.json" --trainers "$trainers" --program "$program" --wordnet - \
    --tiny --rounds 1 --steps 2 --warm-up 1 >>"$log" 2>&1 || failed=1
  tried
}
step_sanitize() {
  local files
  # Tests of test_cuda_whole are left out.
  mapfile -t files < <(grep -l '^#include <tests/cuda/gpu.hpp>' tests/cuda/*.cpp |
    xargs grep -LE '^#include <(tests/cuda/all_ops|dhp/cuda/(cublas|cudnn)_)')
  [ -z "$dry" ] || command -v compute-sanitizer >/dev/null || echo "  not on this machine: compute-sanitizer"
  limited "$python" bench/gpu/sanitize.py build/cuda/tests/test_cuda "$work/sanitize.json" \
    --seconds $(($(left) - 10)) "${files[@]}"
}

all_failed=0
for name in "${steps[@]}"; do
  if [ $((total - SECONDS)) -lt 15 ]; then
    table+=("$(printf '%-15s not run: no time is left' "$name")")
    all_failed=1
    continue
  fi
  [ -z "$dry" ] || echo "$name"
  begin "$name"
  case $name in
    ranks) ranks bert ;;
    recorded | elastic | features) ranks "$name" ;;
    packed | graphs | overhead) figures "$name" ;;
    *) "step_$name" ;;
  esac
  finish
  [ $failed -eq 0 ] || all_failed=1
done
printf '%s\n' "" "${table[@]}" | tee "$out/summary.txt"
exit $all_failed
