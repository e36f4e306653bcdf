#!/usr/bin/env bash
# half_there.sh CMAKE SOURCE SCRATCH: configures for a machine whose libraries are missing or incomplete; a folder is
# its file system. Each configuration must name the libraries that it leaves out, with the reason, and build a program
# with the libraries that it found.
set -u
cmake=$1 source=$2 scratch=$3 root=$3/root failed=0
export PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig MPI_HOME='' I_MPI_ROOT=''
rm -rf "$scratch"
mkdir -p "$scratch/project"
# name|headers (the first is included)|library files|one of its functions
libraries='OpenSSL|openssl/evp.h openssl/ssl.h openssl/opensslv.h|crypto|EVP_sha256
Gloo|gloo/rendezvous/context.h gloo/transport/tcp/device.h gloo/transport/unbound_buffer.h|gloo|
libcurl|curl/curl.h|curl|curl_version
nlohmann_json|nlohmann/json.hpp||
MPI|mpi.h|mpi|MPI_Comm_free
Eigen|Eigen/Core||
CLI11|CLI/CLI.hpp||
doctest|doctest/doctest.h||
zlib|zlib.h|z|zlibVersion
png|png.h|png|png_access_version_number
jpeg|jpeglib.h|jpeg|jpeg_crop_scanline
utf8proc|utf8proc.h|utf8proc|utf8proc_version
Protobuf|google/protobuf/message_lite.h google/protobuf/stubs/common.h|protobuf|
ONNX|onnx/checker.h|onnx onnx_proto|'
{
  echo "cmake_minimum_required(VERSION 3.22)
project(half_there CXX)
list(APPEND CMAKE_MODULE_PATH \"$source/cmake\")
find_package(Threads REQUIRED)
add_library(dhp INTERFACE)
add_library(dhp::dhp ALIAS dhp)
set(DHP_TESTS ON)
foreach(file IN ITEMS processes mpi eigen files onnx)
  include(\${file})
endforeach()
add_executable(uses uses.cpp)"
  while IFS='|' read -r name headers _; do
    echo "if(TARGET dhp::lib_$name)
  target_link_libraries(uses PRIVATE dhp::lib_$name)
  target_compile_definitions(uses PRIVATE HAS_$name)
endif()"
    printf '#ifdef HAS_%s\n#include <%s>\n#endif\n' "$name" "${headers%% *}" >>"$scratch/project/uses.cpp"
  done <<<"$libraries"
} >"$scratch/project/CMakeLists.txt"
echo 'int main() {}' >>"$scratch/project/uses.cpp"

# configure WHAT BUILD NAMES REASON: checks that libraries NAMES are left out for REASON (a regex), and the others work.
# CMake gets the arguments `more`, too.
more=()
configure() {
  local what=$1 build=$2 names=$3 reason=$4 log=$scratch/log start=$EPOCHREALTIME name
  if ! { "$cmake" -Wno-dev -S "$scratch/project" -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$(command -v ninja)" \
    -DCMAKE_CXX_COMPILER="$(command -v c++)" -DCMAKE_FIND_ROOT_PATH="$root" \
    -DCMAKE_FIND_ROOT_PATH_MODE_{INCLUDE,LIBRARY,PACKAGE,PROGRAM}=ONLY "${more[@]}" && "$cmake" --build "$build"; } >"$log" 2>&1 ||
    grep -q "CMake [EW]" "$log"; then
    echo "FAILED: $what"; tail -30 "$log"; failed=1
  fi
  for name in $names; do
    grep -qE "^-- dhp: without $name \(Debian: [a-z0-9-]+\) .*: .*$reason" "$log" || {
      echo "FAILED: $what: no line says that $name is left out because \"$reason\""; grep " $name" "$log"; failed=1; }
  done
  echo "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s  $what"
}
# stubs HEADER LIBRARY: makes each library's headers, declaring its function, and empty library files; "no" omits them.
stubs() {
  rm -rf "$root"
  mkdir -p "$root/usr/include" "$root/usr/lib/pkgconfig" "$root/usr/bin"
  while IFS='|' read -r name headers files function; do
    for header in $headers; do
      [ "$1" = no ] || { mkdir -p "$(dirname "$root/usr/include/$header")"
        echo "extern \"C\" int ${function:-$name}(...);" >"$root/usr/include/$header"; }
    done
    [ ! -e "$root/usr/include/openssl/opensslv.h" ] ||
      echo '# define OPENSSL_VERSION_STR "3.0.9"' >"$root/usr/include/openssl/opensslv.h"
    for file in $files; do
      [ "$2" = no ] || cp "$scratch/empty.so" "$root/usr/lib/lib$file.so"
    done
  done <<<"$libraries"
}
echo | cc -shared -x c - -o "$scratch/empty.so" || exit 1
# whole NAME...: links to this machine's headers and library files of these libraries.
whole() {
  local name headers files folder file
  rm -rf "${root:?}/usr/include/openssl"
  while IFS='|' read -r name headers files _; do
    case " $* " in *" $name "*) ;; *) continue ;; esac
    for folder in /usr/include "/usr/include/$(cc -print-multiarch)" /usr/include/eigen3; do
      file=${headers%% *}
      [ ! -e "$folder/$file" ] || ln -sfnT "$folder/${file%%/*}" "$root/usr/include/${file%%/*}"
    done
    for file in $files; do
      file=$(cc -print-file-name="lib$file.so")
      [ ! -e "$file" ] || ln -sf "$file" "$root/usr/lib/"
    done
  done <<<"$libraries"
}
some='Gloo libcurl zlib png jpeg utf8proc Protobuf'
headers_only='nlohmann_json Eigen CLI11 doctest'

stubs no no
configure "nothing is there" "$scratch/one" "OpenSSL $headers_only ${some#* * }" "its header .* was not found"
whole OpenSSL
[ -e "$root/usr/include/openssl" ] || { echo "skipped: OpenSSL's headers are not on this machine"; exit 77; }
whole OpenSSL zlib png nlohmann_json MPI
[ ! -e "$root/usr/include/mpi.h" ] || ln -s "$(command -v mpicxx)" "$root/usr/bin/mpicxx"
configure "some are installed, and the same folder is configured again" "$scratch/one" "Gloo libcurl" "not found"
found='OpenSSL zlib png nlohmann_json'
[ ! -e "$root/usr/bin/mpicxx" ] || found+=' MPI'
for name in $found; do
  grep -q "^-- dhp: $name.*: $root" "$scratch/log" || { echo "FAILED: $name is not seen"; failed=1; }
done
stubs no no
configure "they are removed again" "$scratch/one" "OpenSSL zlib png nlohmann_json" "(not found|not there|not compile)"

stubs declared no
configure "headers without libraries" "$scratch/headers" "OpenSSL ${some#* * }" "its library was not found"
stubs declared yes
configure "headers, and libraries without the functions" "$scratch/empty" "OpenSSL zlib png jpeg utf8proc" "undefined reference"

# OpenSSL is there from here on: without it, CMake does not look for Gloo, libcurl and MPI.
stubs no yes
whole OpenSSL
configure "libraries without headers" "$scratch/no_headers" "$headers_only MPI $some" "its header .* was not found"
stubs no no
whole OpenSSL
for name in mpi ompi-cxx libcurl zlib libpng libjpeg libutf8proc protobuf; do
  printf 'Name: %s\nDescription: x\nVersion: 9\nLibs: -l%s\nCflags: -I%s/opt/include\n' $name $name "$root" \
    >"$root/usr/lib/pkgconfig/$name.pc"
done
configure "only their files of pkg-config" "$scratch/pkg_config" "MPI ${some}" "its header .* was not found"
for how in "exit 1" "echo -I$root/gone -L$root/gone -lmpi" "echo -qno-such-option -I$root/usr/include -lmpi"; do
  stubs declared yes
  whole OpenSSL
  printf '#!/bin/sh\n%s\n' "$how" >"$root/usr/bin/mpicxx"
  chmod +x "$root/usr/bin/mpicxx"
  configure "an mpicxx that does: ${how//$scratch/}" "$scratch/mpicxx_${#how}" "MPI libcurl" "(mpicxx|undefined reference)"
done
more=(-DMPI_CXX_COMPILER="$root/gone/mpicxx")
configure "an mpicxx that is not there is named" "$scratch/mpicxx_gone" MPI "does not accept $root/gone/mpicxx"
more=()
stubs no no
for name in nlohmann_json CLI11 doctest Eigen3; do
  mkdir -p "$root/usr/lib/cmake/$name"
  target=$name::${name%3}
  echo "add_library($target INTERFACE IMPORTED)
set_target_properties($target PROPERTIES INTERFACE_INCLUDE_DIRECTORIES $root/gone INTERFACE_LINK_LIBRARIES Gone::gone)" \
    >"$root/usr/lib/cmake/$name/${name}Config.cmake"
done
configure "packages for CMake that name what is gone" "$scratch/packages" "$headers_only" "which is not there"
exit $failed
