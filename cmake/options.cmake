# Defines the options. As a subproject dhp builds nothing, installs nothing and sets no flags.
set(DHP_DEVICE cpu CACHE STRING "The device that the programs of this build tree run on: cpu or cuda")
set_property(CACHE DHP_DEVICE PROPERTY STRINGS cpu cuda)
if(NOT DHP_DEVICE MATCHES "^(cpu|cuda)$")
  message(FATAL_ERROR "DHP_DEVICE is '${DHP_DEVICE}'; it can be cpu or cuda")
endif()

# Kernels need vector instructions beyond the compiler's default. A parent project must set -march itself, because
# objects for different architectures cannot be mixed.
set(dhp_arch "")
if(PROJECT_IS_TOP_LEVEL AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(dhp_arch x86-64-v3)
elseif(PROJECT_IS_TOP_LEVEL)
  set(dhp_arch native)
endif()
set(DHP_CPU_ARCH "${dhp_arch}" CACHE STRING "-march of everything that uses dhp::cpu; empty: none")

option(DHP_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DHP_EXAMPLES "Build the lessons and trainers" ${PROJECT_IS_TOP_LEVEL})
option(DHP_BENCH "Build the benchmarks" OFF)
option(DHP_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
# CI sets the environment variable. Elsewhere a warning, as of another compiler, ends no build.
option(DHP_WERROR "Warnings are errors in tests, examples and bench" $ENV{DHP_WERROR})
set(DHP_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")
