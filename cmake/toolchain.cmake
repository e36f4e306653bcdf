# Sets the compiler flags of this tree's programs; users' targets are not affected.
if(PROJECT_IS_TOP_LEVEL)
  # Programs spend their time in dhp::cpu_compiled, whose kernels get -O3 and its framework -O2. The programs themselves
  # get -Og, which compiles in a quarter to a third less time than -O1. Never -ffast-math: it would reorder sums.
  set(CMAKE_CXX_FLAGS_RELEASE "-Og -DNDEBUG")
  # These flags apply to host code only: nvcc always optimizes device code.
  set(CMAKE_CUDA_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "Flags of nvcc in builds of type Release")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
  find_program(DHP_CCACHE ccache)
  mark_as_advanced(DHP_CCACHE)
  if(DHP_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths relative to the source folder let ccache share results between clones.
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      ${DHP_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
    set_target_properties(dhp_cpu_compiled PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")  # the target exists already
  endif()
endif()
if(DHP_DEVICE STREQUAL "cuda")
  include(cuda_language)
endif()

# dhp_build is private: programs of this build link it, exported targets never do.
add_library(dhp_build INTERFACE)
set(dhp_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(DHP_WERROR)
  list(APPEND dhp_warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 warns falsely about "text" + std::string (GCC bug 105651).
  list(APPEND dhp_warnings -Wno-restrict)
endif()
# nvcc moves templates behind a program's own code, whose globals they then seem to shadow.
set(dhp_cuda_warnings ${dhp_warnings})
list(REMOVE_ITEM dhp_cuda_warnings -Wshadow)
list(JOIN dhp_cuda_warnings "," dhp_cuda_warnings)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC collects garbage only from half a GB on: this saves a tenth of the time and takes a third more memory.
  target_compile_options(dhp_build INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")
endif()
target_compile_options(dhp_build INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${dhp_warnings};-Wpedantic>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${dhp_cuda_warnings}>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${DHP_WERROR}>>:-Werror=all-warnings>")
target_include_directories(dhp_build INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(dhp_cpu_compiled PRIVATE dhp_build)

if(DHP_SANITIZE)
  # -Wmaybe-uninitialized is noise in instrumented code; the sanitizers find real errors. AddressSanitizer covers the
  # checks of null and of object sizes, and compiling takes a sixth less time without them.
  target_compile_options(dhp_build INTERFACE -fsanitize=${DHP_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -fno-sanitize=null,object-size,vptr -Wno-maybe-uninitialized)
  target_link_options(dhp_build INTERFACE -fsanitize=${DHP_SANITIZE})
endif()

# Every program of this tree links dhp_device.
add_library(dhp_device INTERFACE)
target_link_libraries(dhp_device INTERFACE dhp::default_device dhp_build)
if(DHP_DEVICE STREQUAL "cuda")
  include(kernel_ops)
  target_link_libraries(dhp_device INTERFACE dhp_cuda_ops $<TARGET_NAME_IF_EXISTS:dhp::nccl>)
endif()

# dhp_device_sources(<file>...): makes nvcc compile these files in a GPU tree. All others stay with the C++ compiler,
# which is several times faster.
function(dhp_device_sources)
  if(DHP_DEVICE STREQUAL "cuda" AND ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  endif()
endfunction()

# dhp_program(<target> <file>...): adds a program of one .cpp, for g++ and nvcc alike.
function(dhp_program target)
  add_executable(${target} ${ARGN})
  dhp_device_sources(${ARGN})
  target_link_libraries(${target} PRIVATE dhp_device)
endfunction()
