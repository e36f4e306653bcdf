# How tests are registered. A test belongs to a folder (its first label) and is quick or slow (its second).

# Sanitizers slow a program down tenfold; other work on the machine may halve its speed again.
set(dhp_time_factor 1)
if(DHP_SANITIZE)
  set(dhp_time_factor 6)
endif()

# dhp_label_test(<test> <folder> <quick|slow> [seconds])
function(dhp_label_test test folder speed)
  set(seconds 120)
  if(speed STREQUAL slow)
    set(seconds 900)
  endif()
  if(ARGC GREATER 3)
    set(seconds ${ARGV3})
  endif()
  math(EXPR seconds "${seconds} * ${dhp_time_factor}")
  set_tests_properties(${test} PROPERTIES LABELS "${folder};${speed}" TIMEOUT ${seconds})
endfunction()

# dhp_tests_of_this_tree(<out> <by nvcc> <file>...): which of the files this tree compiles, and which of those
# nvcc does. A tree for the Cpu compiles all but what includes CUDA; kernels then run emulated. A tree for GPUs
# compiles only what runs on one: tests/cuda, what is typed over DefaultDevice, and what includes CUDA.
function(dhp_tests_of_this_tree out by_nvcc)
  set(all "")
  set(gpu "")
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} includes_cuda REGEX "^#include <(dhp/device/cuda|dhp/comm/nccl|cu|nccl)")
    file(STRINGS ${file} includes_nccl REGEX "^#include <(dhp/comm/nccl|nccl)")
    file(STRINGS ${file} on_device REGEX
      "^#include <(dhp/default_device.hpp|dhp/cuda.cuh|dhp/cuda/launch.cuh|tests/cuda/gpu.hpp)>")
    if(DHP_DEVICE STREQUAL cpu)
      if(NOT includes_cuda)
        list(APPEND all ${file})
      endif()
    elseif(includes_nccl AND NOT TARGET dhp::nccl)
      message(STATUS "dhp: not compiled without NCCL: ${file}")
    else()
      if(on_device)
        list(APPEND gpu ${file})
      endif()
      if(on_device OR includes_cuda)
        list(APPEND all ${file})
      endif()
    endif()
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
  set(${by_nvcc} ${gpu} PARENT_SCOPE)
endfunction()

# A test's command begins with this where the test needs what a tree for GPUs may not find: a GPU.
set(dhp_on_gpu "")
if(DHP_DEVICE STREQUAL cuda)
  add_executable(gpu_present ${PROJECT_SOURCE_DIR}/tests/support/gpu_present.cpp)
  target_link_libraries(gpu_present PRIVATE dhp::cuda dhp_build)
  set(dhp_on_gpu ${PROJECT_SOURCE_DIR}/tests/support/on_gpu.sh $<TARGET_FILE:gpu_present>)
endif()

# dhp_doctest_folder(<folder> <file>...): one executable for a folder, since linking costs more than
# most tests do; one ctest entry for each file of it.
function(dhp_doctest_folder folder)
  dhp_tests_of_this_tree(files by_nvcc ${ARGN})
  if(NOT files)
    return()
  endif()
  set(target test_${folder})
  add_executable(${target} ${files})
  dhp_device_sources(${by_nvcc})
  target_link_libraries(${target} PRIVATE dhp_device dhp_doctest_main dhp_files)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # The Cpu twins, which kernels are compared with, are a test's most expensive code, and need not be fast.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-O1>)
  # Folders to the left of the ops need no kernels, and should not pay for parsing them.
  if(NOT folder MATCHES "^(core|device|tensor|comm|data)$" AND DHP_DEVICE STREQUAL cpu)
    target_link_libraries(${target} PRIVATE dhp_precompiled)
  endif()
  foreach(file IN LISTS files)
    cmake_path(GET file STEM name)
    set(test ${folder}.${name})
    add_test(NAME ${test} COMMAND ${dhp_on_gpu} $<TARGET_FILE:${target}> --source-file=*/${name}.cpp)
    # doctest is content when no case matches; we are not.
    set_tests_properties(${test} PROPERTIES
      FAIL_REGULAR_EXPRESSION "test cases: +0 " SKIP_RETURN_CODE 77)
    if(name MATCHES "_slow$")
      dhp_label_test(${test} ${folder} slow)
    else()
      dhp_label_test(${test} ${folder} quick)
    endif()
  endforeach()
  # A case that sits in a shared header would be in no file's entry, and so never run.
  add_test(NAME structure.cases_of_${folder} COMMAND ${PROJECT_SOURCE_DIR}/tests/structure/cases.sh
    $<TARGET_FILE:${target}> ${files})
  dhp_label_test(structure.cases_of_${folder} structure quick)
endfunction()

# dhp_script_test(<name> <folder> <quick|slow> <command>...): any other program; 77 means skipped.
function(dhp_script_test test folder speed)
  add_test(NAME ${test} COMMAND ${ARGN})
  set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77)
  dhp_label_test(${test} ${folder} ${speed})
endfunction()

# dhp_add_compile_fail_test(<file>): the file must compile with -DGOOD and must not without; the
# compiler has to say what the file's line `// error: <text>` promises.
function(dhp_add_compile_fail_test file)
  cmake_path(ABSOLUTE_PATH file)
  cmake_path(GET file STEM name)
  cmake_path(GET file PARENT_PATH folder)
  string(REGEX REPLACE "/must_not_compile$" "" folder ${folder})
  cmake_path(GET folder FILENAME folder)
  dhp_script_test(${folder}.${name}_must_not_compile ${folder} quick
    ${PROJECT_SOURCE_DIR}/tests/support/must_not_compile.sh ${file} ${dhp_compile})
endfunction()

# The plain command that compiles a header's user: for checks that run a compiler at test time.
set(dhp_compile ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR})
if(DHP_CPU_ARCH)
  list(APPEND dhp_compile -march=${DHP_CPU_ARCH})
endif()
