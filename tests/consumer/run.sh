#!/usr/bin/env bash
# run.sh build_tree|install_tree|fetch_content CMAKE SOURCE BUILD SCRATCH [CMAKE_OPTION]...
set -eu
way=$1 cmake=$2 source=$3 build=$4 scratch=$5
shift 5
rm -rf "$scratch"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
fi
case $way in
  build_tree) how=(-Ddhp_DIR="$build") ;;
  install_tree)
    "$cmake" --install "$build" --prefix "$scratch/prefix" >/dev/null
    # Moves the installed files, because packages may be moved too. Folders may have spaces in their names.
    mv "$scratch/prefix" "$scratch/moved here"
    how=(-DCMAKE_PREFIX_PATH="$scratch/moved here" -DWITH_COMPILED=ON) ;;
  fetch_content) how=(-DDHP_SOURCE="$source") ;;
esac
"$cmake" -S "$source/tests/consumer" -B "$scratch/a build" -G Ninja "${how[@]}" "$@"
"$cmake" --build "$scratch/a build" -j 1
"$scratch/a build/plain"
for program in cpu compiled eigen gpus kernel; do
  if [ -e "$scratch/a build/$program" ]; then "$scratch/a build/$program"; fi
done
