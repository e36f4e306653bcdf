# dhp_emulated_ops: the kernels of include/dhp/cuda for tests::Emulated, compiled once. Programs that link it get the
# matching `extern template` lines by -include. The lines come from the headers, one for every function <op>_on of a
# KernelDevice. ops_0.cu and ops_1.cu have the same functions for Cuda; nvcc compiles them to PTX for tests/cuda/ptx.
set(dir ${CMAKE_CURRENT_BINARY_DIR}/emulated_ops)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/dhp/cuda/kernels.hpp headers REGEX "^#include <dhp/cuda/")
list(TRANSFORM headers REPLACE "^#include <(.*)>" "${PROJECT_SOURCE_DIR}/include/\\1")
set(declarations "")
set(definitions_0 "")
set(definitions_1 "")
set(half 0)  # two sources compile on two cores
foreach(header IN LISTS headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(READ ${header} text)
  string(REGEX MATCHALL "template <KernelDevice Dev>\n[^{;]*_on\\([^{;]*\\) {" functions "${text}")
  foreach(function IN LISTS functions)
    string(REGEX REPLACE "^template <KernelDevice Dev>\n(.*) {$" "\\1" function "${function}")
    string(REGEX REPLACE "([^A-Za-z_])Dev([^A-Za-z_])" "\\1tests::Emulated\\2" function "${function}")
    string(APPEND declarations "extern template ${function};\n")
    string(APPEND definitions_${half} "template ${function};\n")
  endforeach()
  math(EXPR half "1 - ${half}")
endforeach()
set(includes "#include <tests/cuda/emulator.hpp>\n// The device first.\n#include <dhp/cuda/kernels.hpp>\n\n")
file(CONFIGURE OUTPUT ${dir}/extern.hpp @ONLY
  CONTENT "#pragma once\n${includes}namespace dhp::detail {\n${declarations}}\n")
foreach(half IN ITEMS 0 1)
  file(CONFIGURE OUTPUT ${dir}/ops_${half}.cpp CONTENT "${includes}namespace dhp::detail {\n${definitions_${half}}}\n" @ONLY)
  string(REPLACE "tests::Emulated" "Cuda" definitions "${definitions_${half}}")
  file(CONFIGURE OUTPUT ${dir}/ops_${half}.cu @ONLY CONTENT
    "#include <dhp/cuda/launch.cuh>\n#include <dhp/cuda/kernels.hpp>\n\nnamespace dhp::detail {\n${definitions}}\n")
endforeach()

# The library has the kernels, with the functions that tests/cuda/executor.hpp declares.
add_library(dhp_emulated_ops STATIC EXCLUDE_FROM_ALL ${dir}/ops_0.cpp ${dir}/ops_1.cpp)
add_library(dhp_host_kernels STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/cuda/host_kernels.cpp)
target_link_libraries(dhp_host_kernels PRIVATE dhp dhp_build)
target_link_libraries(dhp_emulated_ops PUBLIC $<LINK_ONLY:dhp_host_kernels> PRIVATE dhp_device)
if(NOT DHP_SANITIZE)
  target_compile_options(dhp_emulated_ops PRIVATE -O1)
endif()
target_compile_options(dhp_emulated_ops PRIVATE -U_FORTIFY_SOURCE INTERFACE "SHELL:-include ${dir}/extern.hpp")
