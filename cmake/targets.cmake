# dhp::dhp   the headers that need the standard library only
# dhp::cpu   the same and, in this build tree, the -march for the kernels of device Cpu
# dhp::cuda  adds the CUDA libraries: the kernels of device Cuda
# dhp::default_device  one of the two, by DHP_DEVICE
find_package(Threads REQUIRED)

add_library(dhp INTERFACE)
add_library(dhp::dhp ALIAS dhp)
file(GLOB_RECURSE dhp_headers CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/dhp/*.hpp ${PROJECT_SOURCE_DIR}/include/dhp/*.cuh)
target_sources(dhp INTERFACE FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${dhp_headers})
target_compile_features(dhp INTERFACE cxx_std_20)
target_link_libraries(dhp INTERFACE Threads::Threads)

add_library(dhp_cpu INTERFACE)
add_library(dhp::cpu ALIAS dhp_cpu)
set_target_properties(dhp_cpu PROPERTIES EXPORT_NAME cpu)
target_link_libraries(dhp_cpu INTERFACE dhp)
if(DHP_CPU_ARCH)
  # For this build tree only: whoever uses an installed dhp chooses an -march for the whole program.
  target_compile_options(dhp_cpu INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-march=${DHP_CPU_ARCH}>>)
endif()

find_package(CUDAToolkit QUIET)
if(TARGET CUDA::cublasLt)
  add_library(dhp_cuda INTERFACE)
  add_library(dhp::cuda ALIAS dhp_cuda)
  set_target_properties(dhp_cuda PROPERTIES EXPORT_NAME cuda)
  target_link_libraries(dhp_cuda INTERFACE dhp CUDA::cudart CUDA::cublasLt)
  # Not cuda_std_20: CMake before 3.26 does not know that nvcc 13 has it.
  target_compile_options(dhp_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  find_path(DHP_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(DHP_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(DHP_CUDNN_INCLUDE DHP_CUDNN_LIBRARY)
  if(DHP_CUDNN_INCLUDE AND DHP_CUDNN_LIBRARY)
    target_include_directories(dhp_cuda SYSTEM INTERFACE
      $<BUILD_INTERFACE:${DHP_CUDNN_INCLUDE}>)
    target_link_libraries(dhp_cuda INTERFACE $<BUILD_INTERFACE:${DHP_CUDNN_LIBRARY}>)
  endif()
elseif(DHP_DEVICE STREQUAL cuda)
  message(FATAL_ERROR "DHP_DEVICE is cuda, but the CUDA toolkit with cublasLt was not found")
endif()

# Without the CUDA toolkit there is no dhp_cuda.
if(TARGET dhp_${DHP_DEVICE})
  add_library(dhp::default_device ALIAS dhp_${DHP_DEVICE})
endif()
