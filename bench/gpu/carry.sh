#!/usr/bin/env bash
# Builds programs on one machine for the GPU of another, whose minutes are dear:
#   carry.sh pack FILE.tar.xz [ARCHITECTURE]   builds and packs what bench/gpu.sh runs (sm_90), without debug symbols
#   . carry.sh unpack FILE.tar.xz              in the root of the same tree on the second machine: unpacks it
# Afterwards the steps of bench/gpu.sh that build nothing can run, such as: versions library_tests machine resnet bert
# nccl ranks. Test lists contain paths of the first machine, so its root and CMake become links. The second machine's
# toolkit or Python wheels provide CUDA's libraries, which must not be older.
programs=(gpu_present test_cuda test_cuda_whole test_cuda_libraries test_comm_libraries
  train_bert train_resnet50 train_gpt dhp_doctor bench_world_of_one)

pack() {
  local file staged program from without=() libraries=()
  file=$(realpath -m "$1") && cd "$(dirname "${BASH_SOURCE[0]}")/../.." || return 1
  for program in CURL PNG ZLIB MPI; do without+=("-DCMAKE_DISABLE_FIND_PACKAGE_$program=ON"); done
  cmake --preset cuda "-DCMAKE_CUDA_ARCHITECTURES=${2:-90}" -DDHP_BENCH=ON -DDHP_UNIT_FILES=12 "${without[@]}" &&
    cmake --build --preset cuda --target "${programs[@]}" || return 1
  staged=$(mktemp -d) || return 1
  mkdir -p "$staged/build/cuda" "$staged/build/carried"
  printf '%s\n' "$PWD" "$(command -v cmake)" >"$staged/build/carried/paths"
  (cd build/cuda && find . -name CTestTestfile.cmake -o -name DartConfiguration.tcl | tar cf - -T -) | tar xf - -C "$staged/build/cuda"
  for program in "${programs[@]}"; do
    from=$(find build/cuda -type f -name "$program" -perm -u+x | head -n 1)
    [ -n "$from" ] && install -s -D "$from" "$staged/$from" || { echo "there is no $program" >&2; return 1; }
    # Also packs the libraries that neither CUDA nor every machine brings.
    mapfile -t -O ${#libraries[@]} libraries < <(ldd "$from" | sed -n 's/.* => \(.*lib\(jpeg\|utf8proc\|crypto\)\.so[^ ]*\) .*/\1/p')
  done
  printf '%s\n' "${libraries[@]}" | sort -u | xargs cp -Lt "$staged/build/carried" || return 1
  tar cf - -C "$staged" build | xz -3 -T0 >"$file" && rm -rf "$staged" && ls -l "$file"
}

unpack() {
  local paths
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(".")' "$1" || return 1
  mapfile -t paths <build/carried/paths
  link() { [ -e "$2" ] || { mkdir -p "$(dirname "$2")" && ln -s "$1" "$2"; }; }
  link "$PWD" "${paths[0]}" && link "$(command -v cmake)" "${paths[1]}"
  LD_LIBRARY_PATH=$(python3 -c 'import glob, sys; print(":".join(at for folder in sys.path for at in glob.glob(folder + "/nvidia/*/lib")))')
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$PWD/build/carried
}

case ${1:-} in
  pack | unpack) [ $# -gt 1 ] && "$@" ;;
  *) sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; false ;;
esac
