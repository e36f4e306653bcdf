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

# dhp_needed_libraries(<out> <header>...): the targets of the parts and libraries that these headers belong to.
function(dhp_needed_libraries out)
  set(needed "")
  foreach(library IN LISTS dhp_parts dhp_file_libraries)
    set(own ${ARGN})
    list(FILTER own INCLUDE REGEX "${dhp_headers_of_${library}}")
    if(own)
      list(APPEND needed dhp::${library})
    endif()
  endforeach()
  set(${out} "${needed}" PARENT_SCOPE)
endfunction()

# dhp_sort_tests(<file>...): sets in the caller
#   on_device  files typed over the tree's device: compiled by nvcc for GPUs, else emulated on the Cpu
#   whole      the part of on_device, in a GPU tree, that uses ops of CUDA's libraries
#   plain      neither typed over the device nor using CUDA's libraries
#   libraries  needs CUDA's libraries but no GPU: cuDNN answers queries anywhere
#   gpu        needs CUDA's libraries and a GPU, but not nvcc
#   parts      the targets of other parts that files need
# Files that are typed over the device and need the libraries are in on_device, in GPU trees only. Files whose parts
# are not here are dropped; nvcc never compiles Eigen.
# ThreadSanitizer trees drop Gloo: it is not instrumented, so its synchronization is invisible.
function(dhp_sort_tests)
  foreach(kind IN ITEMS on_device whole plain libraries gpu parts)
    set(${kind} "")
  endforeach()
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} typed REGEX
      "^#include <(dhp/default_device.hpp|dhp/cuda.cuh|dhp/cuda/launch.cuh|tests/cuda/gpu.hpp)>")
    file(STRINGS ${file} uses_gpu REGEX "^#include <dhp/(device/cuda|comm/nccl)")
    dhp_reached_headers(reached ${file})
    dhp_needed_libraries(needed ${reached})
    list(FILTER needed EXCLUDE REGEX "dhp::lib_")  # files do without
    if((needed MATCHES "eigen" AND DHP_DEVICE STREQUAL "cuda") OR (needed MATCHES "gloo" AND DHP_SANITIZE MATCHES thread))
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
    list(FILTER needed EXCLUDE REGEX "cuda|nccl")
    list(APPEND parts ${needed})
    if(typed)
      if(NOT needs OR DHP_DEVICE STREQUAL "cuda")
        list(APPEND on_device ${file})
      endif()
      if(DHP_DEVICE STREQUAL "cuda" AND reached MATCHES "dhp/cuda(\\.cuh|/(cublas|cudnn)_)")
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
  list(REMOVE_DUPLICATES parts)
  foreach(kind IN ITEMS on_device whole plain libraries gpu parts)
    set(${kind} "${${kind}}" PARENT_SCOPE)
  endforeach()
endfunction()
