# Sorts test files by what they need (device, libraries, a GPU), derived from their includes.

# dhp_reached_headers(<out> <file>): the transitive includes of a file among this project's .hpp files. .cuh files do
# not count: they are for nvcc, and the .hpp files that select them by compiler have alternatives.
function(dhp_reached_headers out file)
  get_property(known GLOBAL PROPERTY dhp_reached_${file} SET)
  if(NOT known)
    set_property(GLOBAL PROPERTY dhp_reached_${file} "")  # ends recursion in a cycle
    file(STRINGS ${file} lines REGEX "^#include <[^ ]*>")
    list(TRANSFORM lines REPLACE "^#include <([^>]*)>.*$" "\\1")
    set(reached ${lines})
    foreach(header IN LISTS lines)
      foreach(root IN ITEMS ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
        if(header MATCHES "^(dhp|tests|examples)/.*\\.hpp$" AND EXISTS ${root}/${header})
          dhp_reached_headers(further ${root}/${header})
          list(APPEND reached ${further})
        endif()
      endforeach()
    endforeach()
    list(REMOVE_DUPLICATES reached)
    set_property(GLOBAL PROPERTY dhp_reached_${file} "${reached}")
  endif()
  get_property(reached GLOBAL PROPERTY dhp_reached_${file})
  set(${out} "${reached}" PARENT_SCOPE)
endfunction()

# Targets of libraries, each with a pattern of their headers.
set(dhp_library_headers dhp::cuda "^(cuda_|cublas|cudnn|nvtx3/)" dhp::nccl "^nccl" dhp::processes "^openssl/"
  dhp::gloo "^gloo/" dhp::etcd "^curl/" dhp::mpi "^mpi\\.h" dhp::eigen "^(unsupported/)?Eigen/"
  dhp::lib_zlib "^zlib\\.h" dhp::lib_png "^png\\.h" dhp::lib_jpeg "^jpeglib\\.h" dhp::lib_utf8proc "^utf8proc\\.h")

# dhp_needed_libraries(<out> <header>...): those targets of which headers are among these.
function(dhp_needed_libraries out)
  set(needed "")
  set(rows ${dhp_library_headers})
  while(rows)
    list(POP_FRONT rows library pattern)
    set(own ${ARGN})
    list(FILTER own INCLUDE REGEX "${pattern}")
    if(own)
      list(APPEND needed ${library})
    endif()
  endwhile()
  set(${out} "${needed}" PARENT_SCOPE)
endfunction()

# dhp_sort_tests(<file>...): sets in the caller
#   on_device  files typed over the tree's device: compiled by nvcc for GPUs, else emulated on the Cpu
#   whole      the part of on_device, in a GPU tree, that uses ops of CUDA's libraries
#   plain      neither typed over the device nor using CUDA's libraries
#   libraries  needs CUDA's libraries but no GPU: cuDNN answers queries anywhere
#   gpu        needs CUDA's libraries and a GPU, but not nvcc
# Files that are typed over the device and need the libraries are in on_device, in GPU trees only. Files of NCCL,
# OpenSSL, Gloo, libcurl or Eigen are dropped if the library was not found. Files with OpenSSL or Gloo are also in
# `processes`, those with Eigen in `eigen`; nvcc never compiles Eigen.
# ThreadSanitizer trees drop Gloo: it is not instrumented, so its synchronization is invisible.
function(dhp_sort_tests)
  foreach(kind IN ITEMS on_device whole plain libraries gpu processes eigen)
    set(${kind} "")
  endforeach()
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} typed REGEX
      "^#include <(dhp/default_device.hpp|dhp/cuda.cuh|dhp/cuda/launch.cuh|tests/cuda/gpu.hpp)>")
    file(STRINGS ${file} uses_gpu REGEX "^#include <dhp/(device/cuda|comm/nccl)")
    dhp_reached_headers(reached ${file})
    dhp_needed_libraries(needed ${reached})
    list(FILTER needed EXCLUDE REGEX "dhp::lib_")  # files do without
    if((needed MATCHES "eigen" AND DHP_DEVICE STREQUAL cuda) OR (needed MATCHES "gloo" AND DHP_SANITIZE MATCHES thread))
      continue()
    endif()
    set(missing "")
    foreach(library IN LISTS needed)
      if(NOT TARGET ${library})
        list(APPEND missing ${library})
      endif()
    endforeach()
    if(missing)
      message(STATUS "dhp: not compiled, since ${missing} is not here: ${file}")
      continue()
    endif()
    set(needs ${needed})
    list(FILTER needs INCLUDE REGEX "cuda|nccl")
    if(needed MATCHES "processes|gloo")
      list(APPEND processes ${file})
    endif()
    if(needed MATCHES "eigen")
      list(APPEND eigen ${file})
    endif()
    if(typed)
      if(NOT needs OR DHP_DEVICE STREQUAL cuda)
        list(APPEND on_device ${file})
      endif()
      if(DHP_DEVICE STREQUAL cuda AND reached MATCHES "dhp/cuda(\\.cuh|/(cublas|cudnn)_)")
        list(APPEND whole ${file})
      endif()
    elseif(NOT needs)
      list(APPEND plain ${file})
    elseif(uses_gpu)
      list(APPEND gpu ${file})
    else()
      list(APPEND libraries ${file})
    endif()
  endforeach()
  foreach(kind IN ITEMS on_device whole plain libraries gpu processes eigen)
    set(${kind} "${${kind}}" PARENT_SCOPE)
  endforeach()
endfunction()
