# dhp::cuda: the kernels of device Cuda. dhp::nccl: dhp::cuda with NCCL. Both dhp's build and find_package(dhp) create
# them on the target machine, because CUDA libraries are in different places: user-named folders, the toolkit, the
# distribution, or Python's wheels (nvidia-cudnn-cu13, nvidia-nccl-cu13). A small program, cuda/*.cpp, tests each place;
# the result is printed.
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/library.cmake)
set(DHP_CUDA_FOLDERS "" CACHE STRING
  "Folders, each with include and lib of CUDA libraries, that are looked at before all others")
mark_as_advanced(DHP_CUDA_FOLDERS)

# Lists all places, best first, as "name|header folder|library folder".
function(dhp_cuda_places out)
  set(places "")
  foreach(folder IN LISTS DHP_CUDA_FOLDERS)
    list(APPEND places "DHP_CUDA_FOLDERS|${folder}/include|${folder}")
  endforeach()
  foreach(include IN LISTS CUDAToolkit_INCLUDE_DIRS)
    list(APPEND places "the toolkit|${include}|${CUDAToolkit_LIBRARY_DIR}")
  endforeach()
  list(APPEND places "the distribution||")
  find_program(DHP_WHEELS_PYTHON NAMES python3 python)
  mark_as_advanced(DHP_WHEELS_PYTHON)
  if(DHP_WHEELS_PYTHON)
    execute_process(COMMAND ${DHP_WHEELS_PYTHON} -c "import sys; print(';'.join(sys.path))"
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(entry IN LISTS path)
      # Wheels have one folder per library, or (cu13) one for many.
      file(GLOB wheels LIST_DIRECTORIES true "${entry}/nvidia/*")
      foreach(wheel IN LISTS wheels)
        list(APPEND places "Python's wheels|${wheel}/include|${wheel}/lib")
      endforeach()
    endforeach()
  endif()
  list(REMOVE_DUPLICATES places)
  set(${out} "${places}" PARENT_SCOPE)
endfunction()

# Compiles, links and runs cuda/<name>.cpp. <said>: its output; <wrong>: the first error, or "".
function(dhp_cuda_try name include library said wrong)
  if(NOT CMAKE_CXX_COMPILER_LOADED)  # nothing can be tried
    set(${said} "" PARENT_SCOPE)
    set(${wrong} "" PARENT_SCOPE)
    return()
  endif()
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/dhp_try)
  dhp_try(problem ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cuda/${name}.cpp "${CUDAToolkit_INCLUDE_DIRS};${include}"
    "${library};CUDA::cudart_static;${CMAKE_DL_LIBS}" COPY_FILE ${dir}/${name}.out COPY_FILE_ERROR not_copied)
  set(printed "")
  if(problem STREQUAL "" AND NOT CMAKE_CROSSCOMPILING)
    execute_process(COMMAND ${dir}/${name}.out RESULT_VARIABLE status
      OUTPUT_VARIABLE printed ERROR_VARIABLE complaint OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
      string(STRIP "${printed}${complaint}" problem)
      if(problem STREQUAL "")
        set(problem "it compiles, but ends with: ${status}")
      endif()
    endif()
  endif()
  set(${said} "${printed}" PARENT_SCOPE)
  set(${wrong} "${problem}" PARENT_SCOPE)
endfunction()

# dhp_cuda_library(<name> <header> [<library name>...]): defines dhp::cuda_<name> from the first
# place that passes cuda/<name>.cpp.
function(dhp_cuda_library name header)
  string(TOUPPER DHP_${name} variable)
  if(NOT ${variable}_INCLUDE OR (ARGN AND NOT EXISTS "${${variable}_LIBRARY}"))
    dhp_cuda_places(places)
    foreach(place IN LISTS places)
      string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|(.*)$" place "${place}")
      set(called ${CMAKE_MATCH_1})
      set(in_header PATHS ${CMAKE_MATCH_2} NO_DEFAULT_PATH)
      set(in_library PATHS ${CMAKE_MATCH_3} NO_DEFAULT_PATH)
      if(called STREQUAL "the distribution")
        set(in_header "")
        set(in_library "")
      endif()
      unset(include)
      unset(library)
      find_path(include ${header} ${in_header} NO_CACHE)
      if(ARGN)
        find_library(library NAMES ${ARGN} ${in_library} PATH_SUFFIXES lib64 lib NO_CACHE)
      endif()
      if(NOT include)
        continue()
      endif()
      string(REGEX REPLACE "/$" "" include "${include}")
      set(files ${include})
      if(ARGN AND NOT library)
        set(wrong "its header is there, but not its library")
      else()
        string(STRIP "${include} ${library}" files)
        dhp_cuda_try(${name} "${include}" "${library}" said wrong)
      endif()
      if(wrong STREQUAL "")
        dhp_say("${name} ${said} from ${called}: ${files}")
        set(${variable}_INCLUDE "${include}" CACHE PATH "Folder of ${header}" FORCE)
        set(${variable}_LIBRARY "${library}" CACHE FILEPATH "Library of ${header}" FORCE)
        mark_as_advanced(${variable}_INCLUDE ${variable}_LIBRARY)
        break()
      endif()
      dhp_say("${name} from ${called} is refused: ${wrong} (${files})")
    endforeach()
  endif()
  if(NOT ${variable}_INCLUDE)
    dhp_say("${name} was not found in the toolkit, the distribution, Python's wheels or "
      "DHP_CUDA_FOLDERS (${header})")
    return()
  endif()
  add_library(dhp::cuda_${name} INTERFACE IMPORTED GLOBAL)
  set_target_properties(dhp::cuda_${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${${variable}_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "${${variable}_LIBRARY}")
endfunction()

if(CUDAToolkit_ROOT AND NOT IS_DIRECTORY "${CUDAToolkit_ROOT}")
  dhp_say("there is no dhp::cuda, because there is no folder CUDAToolkit_ROOT=${CUDAToolkit_ROOT}")
  return()
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart_static)
  dhp_say("there is no dhp::cuda, because the CUDA toolkit was not found (-DCUDAToolkit_ROOT=FOLDER "
    "says where it is)")
  return()
endif()
dhp_say("CUDA toolkit ${CUDAToolkit_VERSION}: ${CUDAToolkit_BIN_DIR}")
dhp_cuda_library(cublasLt cublasLt.h cublasLt libcublasLt.so.13 libcublasLt.so.12)
dhp_cuda_library(cudnn cudnn.h cudnn libcudnn.so.9)
dhp_cuda_library(nvtx3 nvtx3/nvToolsExt.h)
foreach(needed IN ITEMS cublasLt cudnn nvtx3)
  if(NOT TARGET dhp::cuda_${needed})
    dhp_say("there is no dhp::cuda, because ${needed} is missing")
    return()
  endif()
endforeach()

add_library(dhp::cuda INTERFACE IMPORTED GLOBAL)
# Links the same runtime as nvcc, since two runtimes in one program would not share state.
target_link_libraries(dhp::cuda INTERFACE dhp::dhp
  $<IF:$<STREQUAL:$<UPPER_CASE:$<TARGET_PROPERTY:CUDA_RUNTIME_LIBRARY>>,SHARED>,CUDA::cudart,CUDA::cudart_static>
  dhp::cuda_cublasLt dhp::cuda_cudnn dhp::cuda_nvtx3 ${CMAKE_DL_LIBS})
# Kernels call constexpr functions of the standard library. -std=c++20 replaces cuda_std_20, which CMake before 3.26
# does not know for nvcc 13.
target_compile_options(dhp::cuda INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)

dhp_cuda_library(nccl nccl.h nccl libnccl.so.2)
dhp_part(nccl dhp::cuda dhp::cuda_nccl)
if(NOT TARGET dhp::nccl)
  dhp_say("there is no dhp::nccl: a program can use one GPU only")
endif()
