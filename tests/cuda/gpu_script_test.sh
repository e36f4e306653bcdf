#!/usr/bin/env bash
# gpu_script_test.sh ROOT FOLDER TRAINERS: tests bench/gpu.sh and its scripts without a GPU. FOLDER: for scratch files.
# TRAINERS: the folder of the trainers for the CPU.
set -u
root=$1 folder=$2 trainers=$3
python=${PYTHON:-python3}
. "$(dirname "$0")/../support/expect.sh"
rm -rf "$folder" && mkdir -p "$folder" || exit 1
shows() {  # shows FILE LINE...: checks that the file has each line
  local file=$1 line
  shift
  for line in "$@"; do
    grep -qxF -- "$line" "$file" || { echo "$file has no line '$line':"; cat "$file"; status=1; }
  done
}

# --- Dry runs of every call, from an empty folder.
rm -rf "$folder/rehearsal"
expect 0 "rehearsal: every command, file, option and target of ours exists" \
  bash "$root/bench/gpu.sh" --rehearse "$folder/rehearsal" --trainers "$trainers"
shows "$folder/rehearsal/build/report.md" "| ResNet-50, fp16: samples/s | >= 8000 | - | not measured |"
expect 0 "resnet_steps" cat "$folder/rehearsal/build/summary.txt"
expect 2 "is not empty" bash "$root/bench/gpu.sh" --rehearse "$folder/rehearsal"
tree=$folder/rehearsal/tree
expect 1 "others          not run: no time is left" env DHP_CALL_SECONDS=10 bash "$tree/bench/gpu.sh" others --dry-run
if [ -e "$tree/build/cuda/build.ninja" ]; then  # this machine has nvcc
  sed 's/ test_cuda_libraries; }/ test_cudas; }/' "$tree/bench/gpu.sh" >"$tree/bench/wrong.sh"
  expect 1 "unknown target 'test_cudas'" bash "$tree/bench/wrong.sh" libraries --dry-run
fi
expect 2 "unknown: resnets" bash "$tree/bench/gpu.sh" resnets
if [ -x "$trainers/train_bert" ]; then
  expect 0 "--only bert_base_128 --rounds 5" \
    bash "$tree/bench/gpu.sh" bert --only bert_base_128 --rounds 5 --dry-run --trainers "$trainers"
  mkdir -p "$folder/others"
  for name in train_bert train_resnet50 train_gpt; do  # trainers that lack an option
    printf '#!/usr/bin/env bash\n"%s" --help | sed s/--micro-batch/--micro-batches/\n' "$trainers/$name" >"$folder/others/$name"
    chmod +x "$folder/others/$name"
  done
  for step in ranks recorded elastic features resnet_steps bert packed graphs compile_resnet others; do
    expect 1 "has no option --micro-batch" bash "$tree/bench/gpu.sh" $step --dry-run --trainers "$folder/others"
  done
fi
# A missing header is reported before anything is built.
mv "$tree/build/headers" "$tree/build/elsewhere"
sed -i 's#/usr/include /usr/local/include#/nowhere#' "$tree/bench/gpu.sh"
expect 1 "not here: doctest/doctest.h CLI/CLI.hpp" bash "$tree/bench/gpu.sh" versions --dry-run

# --- Tests that ctest has skipped are listed, but are no failure; tests that failed or were not built are failures.
log=$folder/tests.log
cat >"$log" <<'LOG'
      Start  1: cuda.rows
 1/4 Test  #1: cuda.rows ........................   Passed    0.20 sec
 2/4 Test  #7: lesson.10_all_three ...............***Skipped   0.10 sec
LOG
cat >"$folder/LastTest.log" <<'LOG'
2/4 Testing: lesson.10_all_three
2/4 Test: lesson.10_all_three
Output:
----------------------------------------------------------
1 GPU
skipped: 8 GPUs are needed, one for each rank
<end of output>
LOG
counted() { "$python" "$root/bench/gpu/report.py" tests "$log" "$folder/tests.json" --details "$folder/LastTest.log"; }
expect 0 "1 passed, 0 failed, 0 not built, 1 skipped" counted
expect 0 "skipped: lesson.10_all_three: 8 GPUs are needed, one for each rank" counted
echo ' 3/4 Test  #8: cuda.reduce ......................***Not Run   0.00 sec' >>"$log"
expect 1 "not built: cuda.reduce" counted
echo ' 4/4 Test  #9: cuda.pool ........................***Failed    0.10 sec' >>"$log"
expect 1 "1 passed, 1 failed, 1 not built, 1 skipped" counted
echo '{"seconds": 3, "failed": true}' >"$folder/tests.part.json"
"$python" "$root/bench/gpu/report.py" write "$folder" "$folder/report" --commit abc || status=1
shows "$folder/report/report.md" "- FAILED: cuda.pool" "- not built: cuda.reduce" \
  "- skipped: lesson.10_all_three: 8 GPUs are needed, one for each rank"
: >"$log"
expect 1 "0 passed" counted

# --- Layouts: a hung trainer is ended with all its ranks, and the other layouts still run.
export HANG=90.$$  # a number of seconds by which pgrep finds only these processes
cat >"$folder/trainer" <<'TRAINER'
#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  case $1 in
    --tensor-parallel) tensor=$2 ;;
    --data-parallel) data=$2 ;;
    --metrics) metrics=$2 ;;
  esac
  shift
done
[ "$tensor" = 1 ] || [ "$data" = 2 ] || exec sleep "$HANG"
echo '{"step": 1, "loss": 2.5}' >"$metrics"
TRAINER
chmod +x "$folder/trainer"
"$python" "$root/bench/gpu/ranks.py" "$root/tests/cuda/ranks.sh" "$folder/trainer" "$folder/trainer" \
  "$folder/ranks.json" --model bert --seconds 60 --each 13 >"$folder/layouts"
expect 0 "2x2x2  same" cat "$folder/layouts"
expect 0 "1x2x1  failed: rank" cat "$folder/layouts"
if pgrep -f "^sleep 90\\.$$" >/dev/null; then echo "ranks are left behind"; status=1; fi

# --- Programs that were built on another machine find their paths and libraries.
mkdir -p "$folder/packed/build/carried" "$folder/here"
printf '%s\n' "$folder/there/tree" "$folder/there/bin/cmake" >"$folder/packed/build/carried/paths"
tar cJf "$folder/packed.tar.xz" -C "$folder/packed" build
expect 0 "$folder/here/build/carried" bash -c "cd '$folder/here' && . '$root/bench/gpu/carry.sh' unpack '$folder/packed.tar.xz' &&
  test '$folder/there/tree/build/carried/paths' -ef build/carried/paths -a -x '$folder/there/bin/cmake' && echo \"\$LD_LIBRARY_PATH\""

# --- A failing case has its own row, and the other cases still run.
expect 1 "bert-tiny: [Errno 2] No such file or directory" \
  "$python" "$root/bench/gpu/figures.py" overhead "$folder/failed.json" --program "$folder/nowhere" --tiny
[ "$(grep -c '"failed": ' "$folder/failed.json")" -eq 2 ] || { cat "$folder/failed.json"; status=1; }

# --- The results of several ranks on one GPU.
printf '%s\n' "passed: every collective, 2 ranks" "[0] something" "FAILED: a rank that stops" >"$folder/nccl.log"
"$python" "$root/bench/gpu/report.py" part "$folder" nccl --seconds 9 --failed 1 || status=1
"$python" "$root/bench/gpu/report.py" write "$folder" "$folder/report" --commit abc || status=1
shows "$folder/report/report.md" "9 s, FAILED" "- passed: every collective, 2 ranks" "- FAILED: a rank that stops"

# --- Every figure beside its target.
row='"batch": 256, "peer": "eager", "dhp_samples_per_s": 7000, "peer_samples_per_s": 6000, "ratio_least": 1, "ratio_most": 2'
row+=', "dhp_share_of_bound": 0.7, "peer_share_of_bound": 0.6, "dhp_peak_memory_bytes": 30, "peer_peak_memory_bytes": 40'
cat >"$folder/resnet.json" <<JSON
{"rows": [{"case": "ResNet-50", "precision": "fp16", "ratio": 1.2, $row},
          {"case": "ResNet-50", "precision": "bf16", "failed": "no memory"}]}
JSON
cat >"$folder/overhead.json" <<'JSON'
{"figures": [{"figure": "a world of one, bert-base", "ratio": 1.02, "ratio_least": 1.01, "ratio_most": 1.03}]}
JSON
for part in resnet overhead; do
  : >"$folder/$part.log"
  "$python" "$root/bench/gpu/report.py" part "$folder" $part || status=1
done
"$python" "$root/bench/gpu/report.py" write "$folder" "$folder/report" --commit abc || status=1
shows "$folder/report/report.md" "| ResNet-50, fp16: dhp / eager PyTorch | >= 1.000 | 1.200 | met |" \
  "| ResNet-50, bf16: dhp / eager PyTorch | >= 1.000 | - | not measured |" \
  "| ResNet-50, fp16: samples/s | >= 8000 | 7000 | NOT MET |" \
  "| ResNet-50, fp16: peak memory, dhp / PyTorch |  | 0.75 | nothing is asked |" \
  "| a world of one, bert-base | <= 1.010 | 1.020 | NOT MET |" \
  "| starts of several NCCL ranks that pass, of 5 | >= 5 | 1 | NOT MET |" \
  "- a world of one, bert-base: **1.020** (1.010 to 1.030)"
echo '{"device": "NVIDIA H100 80GB HBM3", "driver": "1", "nvcc": "13", "pytorch": "2", "pytorch_cuda": "13", "pytorch_cudnn": 9,
  "copy_bytes_per_s": 3e12, "bf16_matrix_flop_per_s": 7.9e14, "multiprocessors": 132}' >"$folder/machine.json"
"$python" "$root/bench/gpu/report.py" write "$folder" "$folder/h100" --commit abc || status=1
shows "$folder/h100/report.md" "| ResNet-50, fp16: samples/s | >= 6100 | 7000 | met |"
grep -q '"verdict": "NOT MET"' "$folder/report/report.json" || { echo "report.json has no verdicts"; status=1; }

exit $status
