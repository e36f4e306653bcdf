#!/usr/bin/env bash
# Builds and tests for this machine's GPU and measures against PyTorch; needs no network:
#   bench/gpu.sh [--dry-run] [--headers FOLDER] [--out FOLDER] [--merge REPORT.json] [--trainers FOLDER] PART...
# build      preset cuda into build/cuda; FOLDER of --headers holds doctest, CLI11, nlohmann json and libcrypto where the
#            system has none (bench/gpu/collect_headers.sh FOLDER fills it)
# tests      all tests of build/cuda but those of part nccl
# nccl       every collective among 2 and 3 ranks as processes on one GPU; ranks with mismatched calls, killed and hung ranks
# ranks      BERT in layouts of up to 8 ranks as processes on one GPU: the same losses
# recorded   ResNet and BERT on 2 such ranks, recorded and unrecorded: the same losses
# resnet     ResNet-50, fp16 and bf16, against eager PyTorch (channels_last, mixed precision)
# bert       BERT-base and -large, bf16, 128 and 512 tokens, against eager PyTorch
# packed     BERT-base on text: counted tokens per second, packed against padded
# graphs     steps as CUDA graphs against eager steps: ResNet-50, BERT-base
# overhead   steps in a world of one NCCL rank against steps without a communicator
# compile_resnet, compile_bert
#            ResNet-50 in fp16, BERT-large with 512 tokens against torch.compile(max-autotune); compilation is cached, so
#            an interrupted part continues when it is run again
# sanitize   compute-sanitizer over the tests of single ops
# Each part ends within 8 minutes and needs only build; an interrupted build continues when it is run again. After each
# part the report is rewritten from all parts so far: report.md, report.json and logs.tgz in --out (build/gpu/report).
# --merge adds the parts of an earlier report. --dry-run runs nothing on a GPU, but checks that every command, file and
# option exists. With PyTorch and CPU trainers in --trainers (build/release/examples) it also tries the comparisons on
# the CPU. It writes to build/gpu_dry_run, or to --out.
# PYTHON names the interpreter with PyTorch; DHP_COMMIT the commit, if there is no git.
set -u
cd "$(dirname "$0")/.." || exit 1
work=build/gpu
headers='' merge='' dry='' out='' trainers=build/release/examples
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=yes ;;
    --headers) headers=$2; shift ;;
    --out) out=$2; shift ;;
    --merge) merge=$2; shift ;;
    --trainers) trainers=$2; shift ;;
    build | tests | nccl | ranks | recorded | resnet | bert | packed | graphs | overhead | compile_resnet | \
      compile_bert | sanitize) parts+=("$1") ;;
    *) sed -n '2,/^set -u/p' "$0" | grep '^#' >&2; echo "unknown: $1" >&2; exit 2 ;;
  esac
  shift
done
if [ ${#parts[@]} -eq 0 ]; then
  all=(build tests nccl ranks recorded resnet bert packed graphs overhead compile_resnet compile_bert sanitize)
  [ -n "$dry" ] || { echo "bench/gpu.sh: name the parts to run: ${all[*]}" >&2; exit 2; }
  parts=("${all[@]}")
fi
[ -z "$dry" ] || work=${out:-build/gpu_dry_run} out=''
out=${out:-$work/report}
mkdir -p "$work" "$out"
work_path=$(cd "$work" && pwd)
python=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer

# --- A part's lines in the report.
begin() { part=$1 log=$work/$1.log started=$SECONDS failed=0; : >"$log"; rm -f "$work/$1.json"; }
finish() {
  local result="done"
  [ $failed -eq 0 ] || result="FAILED, see $log"
  "$python" bench/gpu/report.py part "$work" "$part" --seconds $((SECONDS - started)) --failed $failed
  report
  printf '%-10s %4d s  %s\n' "$part" $((SECONDS - started)) "$result"
}
report() {
  "$python" bench/gpu/report.py write "$work" "$out" --commit "${DHP_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}" \
    ${merge:+--merge "$merge"} || failed=1
  tar czf "$out/logs.tgz" -C "$work" --exclude=./report --exclude=./inductor .
}
# limited SECONDS COMMAND...: runs it with a time limit, output to the log.
limited() {
  local seconds=$1 status=0
  shift
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

# --- --dry-run: our files must exist; missing foreign programs are only listed.
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

# The machine's peak rates, measured once; only the comparisons need them.
measure_machine() {
  if [ -n "$dry" ] || [ ! -e "$work/machine.json" ]; then
    limited 120 "$python" bench/gpu/machine.py "$work/machine.json"
  fi
}

needed=(gpu_present train_bert train_resnet50 test_cuda test_cuda_whole test_cuda_libraries test_comm_libraries
  bench_world_of_one)
part_build() {
  local configure=(cmake --preset cuda -DDHP_WERROR=OFF -DDHP_BENCH=ON "-DDHP_WHEELS_PYTHON=$(command -v "$python")")
  [ -z "$headers" ] || configure+=(-DCMAKE_PREFIX_PATH="$(cd "$headers" && pwd)")
  if [ -n "$dry" ]; then
    cmake --list-presets | grep -q '"cuda"' || missing "preset cuda"
    command -v nvcc >/dev/null || echo "  not on this machine: nvcc"
  fi
  local keep_going=(-- -k)
  if command -v ninja >/dev/null; then keep_going+=(0); else configure+=(-G "Unix Makefiles"); fi
  limited 60 "${configure[@]}" || return
  # Targets of other parts first, then the rest of the tests. An interrupted build continues when
  # this part is run again; finished programs can run meanwhile.
  limited $((470 - SECONDS + started)) cmake --build build/cuda -j "$(nproc)" --target "${needed[@]}" "${keep_going[@]}"
  limited $((470 - SECONDS + started)) cmake --build build/cuda -j "$(nproc)" "${keep_going[@]}"
}
part_tests() {
  limited 60 build/cuda/tests/gpu_present || return
  [ -n "$dry" ] || measure_machine || failed=0
  limited 420 ctest --test-dir build/cuda -j 4 -LE "headers|consumer" -E "^cuda.nccl_ranks$" --output-on-failure --timeout 200
  [ -n "$dry" ] || "$python" bench/gpu/report.py tests "$log" "$work/tests.json" \
    --details build/cuda/Testing/Temporary/LastTest.log || failed=1
}
part_nccl() { limited 430 tests/cuda/nccl_ranks.sh build/cuda/tests/test_comm_libraries; }
part_ranks() {  # part_ranks bert|recorded
  limited 430 "$python" bench/gpu/ranks.py tests/cuda/ranks.sh build/cuda/examples/train_bert \
    build/cuda/examples/train_resnet50 "$work/$part.json" --model "$1" --seconds 400
  [ -z "$dry" ] ||
    has_options bench/gpu/ranks.py tests/cuda/ranks.sh "$trainers/train_bert" "$trainers/train_resnet50" - --model "$1"
}
# Later processes and parts reuse compiled cuDNN plans and timings.
keep_choices() { export DHP_PLAN_CACHE=$work_path/plans TORCHINDUCTOR_CACHE_DIR=$work_path/inductor; }
part_compare() {  # part_compare KIND
  keep_choices
  measure_machine || return
  limited 430 "$python" bench/gpu/compare.py "$1" "$work/$1.json" --machine "$work/machine.json" \
    --trainers build/cuda/examples
  [ -z "$dry" ] || try_on_cpu "$1"
}
part_figures() {  # part_figures KIND
  keep_choices
  limited 430 "$python" bench/gpu/figures.py "$1" "$work/$1.json" --trainers build/cuda/examples \
    --program build/cuda/bench/bench_world_of_one
  [ -n "$dry" ] || return
  has_options bench/gpu/figures.py "$1" "$work/$1.json" --trainers "$trainers" || return
  local program=$trainers/../bench/bench_world_of_one
  [ "$1" != overhead ] || [ -x "$program" ] || { echo "  not tried: there is no $program"; return; }
  "$python" bench/gpu/figures.py "$1" "$work/$1.json" --trainers "$trainers" --program "$program" --wordnet - \
    --tiny --rounds 1 --steps 2 --warm-up 1 >>"$log" 2>&1 || failed=1
  tail -n 1 "$log" | sed 's/^/  tried on the CPU: /'
}
part_sanitize() {
  [ -z "$dry" ] || command -v compute-sanitizer >/dev/null || echo "  not on this machine: compute-sanitizer"
  local files
  # Not the tests in test_cuda_whole.
  mapfile -t files < <(grep -l '^#include <tests/cuda/gpu.hpp>' tests/cuda/*.cpp |
    xargs grep -LE '^#include <(tests/cuda/all_ops|dhp/cuda/(cublas|cudnn)_)')
  limited 430 "$python" bench/gpu/sanitize.py build/cuda/tests/test_cuda "$work/sanitize.json" --seconds 400 "${files[@]}"
}
# has_options SCRIPT ARGUMENT...: whether the CPU trainers accept the script's options.
has_options() {
  if [ ! -x "$trainers/train_bert" ] || [ ! -x "$trainers/train_resnet50" ]; then
    echo "  not tried: there are no trainers in $trainers"
    return 1
  fi
  "$python" "$@" --dry-run >>"$log" 2>&1 || { tail -n 5 "$log"; failed=1; return 1; }
}
# The same scripts with small models, on the CPU.
try_on_cpu() {
  has_options bench/gpu/compare.py "$1" "$work/$1.json" --trainers "$trainers" || return
  if ! "$python" -c 'import torch; assert torch.__version__ >= "2"' 2>/dev/null; then
    echo "  not tried: $python has no PyTorch 2"
    return
  fi
  [ -e "$work/machine.json" ] || "$python" bench/gpu/machine.py "$work/machine.json" --tiny || failed=1
  "$python" bench/gpu/compare.py "$1" "$work/$1.json" --machine "$work/machine.json" --trainers "$trainers" \
    --tiny --rounds 2 --steps 2 --warm-up 1 >>"$log" 2>&1 || failed=1
  tail -n 1 "$log" | sed 's/^/  tried on the CPU: /'
}

all_failed=0
for name in "${parts[@]}"; do
  begin "$name"
  [ -z "$dry" ] || echo "$name"
  case $name in
    build) part_build ;;
    tests) part_tests ;;
    nccl) part_nccl ;;
    ranks) part_ranks bert ;;
    recorded) part_ranks recorded ;;
    packed | graphs | overhead) part_figures "$name" ;;
    sanitize) part_sanitize ;;
    *) part_compare "$name" ;;
  esac
  finish
  [ $failed -eq 0 ] || all_failed=1
done
if [ -n "$dry" ] && [ $all_failed -eq 0 ]; then
  echo "dry run: every command, file and option of ours exists"
elif [ -n "$dry" ]; then
  echo "dry run: something is missing, see above"
fi
exit $all_failed
