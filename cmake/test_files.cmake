# Sorts test files by what they need (device, libraries, a GPU), derived from their includes.

# dhp_reached_headers(<out> <file>): the transitive includes of a file among this project's .hpp files. .cuh files do
# not count: they are for nvcc, and the .hpp files that select them by compiler have alternatives.
function(dhp_reached_headers out file)
  get_property(known GLOBAL PROPERTY dhp_reached_${file} SET)
  if(NOT known)
    set_property(GLOBAL PROPERTY dhp_reached_${file} "")  # ends recursion in a cycle
    file(STRINGS ${file} lines REGEX "^#include <[^ ]*>")
    list(TRANSFORM lines REPLACE "^#include <(.*)>.*$" "\\1")
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
    set(needs ${reached})
    list(FILTER needs INCLUDE REGEX "^(cuda_|cublas|cudnn|nvtx3/|nccl)")
    set(needs_openssl ${reached})
    list(FILTER needs_openssl INCLUDE REGEX "^openssl/")
    set(needs_gloo ${reached})
    list(FILTER needs_gloo INCLUDE REGEX "^gloo/")
    set(needs_curl ${reached})
    list(FILTER needs_curl INCLUDE REGEX "^curl/")
    set(needs_eigen ${reached})
    list(FILTER needs_eigen INCLUDE REGEX "^Eigen/")
    if(needs_eigen AND DHP_DEVICE STREQUAL cuda)
      continue()
    endif()
    if(needs_gloo AND DHP_SANITIZE MATCHES thread)
      continue()
    endif()
    if((needs AND NOT TARGET dhp::cuda) OR (needs MATCHES "nccl" AND NOT TARGET dhp::nccl) OR
        (needs_openssl AND NOT TARGET dhp::processes) OR (needs_gloo AND NOT TARGET dhp::gloo) OR
        (needs_curl AND NOT TARGET dhp::etcd) OR (needs_eigen AND NOT TARGET dhp::eigen))
      message(STATUS "dhp: not compiled, since its library is not here: ${file}")
      continue()
    endif()
    if(needs_openssl OR needs_gloo)
      list(APPEND processes ${file})
    endif()
    if(needs_eigen)
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
