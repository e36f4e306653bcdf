# dhp::dhp   headers that need only the standard library
# dhp::cpu   dhp::dhp and, in this build tree, -march for the kernels of device Cpu
# dhp::cpu_compiled  dhp::cpu with precompiled kernels
# dhp::<part>  the parts of parts.cmake whose libraries are found
# dhp::default_device  dhp::cpu or dhp::cuda, by DHP_DEVICE
include(GNUInstallDirs)
find_package(Threads REQUIRED)

add_library(dhp INTERFACE)
add_library(dhp::dhp ALIAS dhp)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(dhp_system SYSTEM)  # a project's warnings are about its own files
endif()
target_include_directories(dhp ${dhp_system} INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(dhp INTERFACE cxx_std_20)
target_link_libraries(dhp INTERFACE Threads::Threads)

add_library(dhp_cpu INTERFACE)
add_library(dhp::cpu ALIAS dhp_cpu)
set_target_properties(dhp_cpu PROPERTIES EXPORT_NAME cpu)
target_link_libraries(dhp_cpu INTERFACE dhp)
if(DHP_CPU_ARCH)
  # -march is for this build tree only: users of an installed dhp choose -march for the whole program.
  target_compile_options(dhp_cpu INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-march=${DHP_CPU_ARCH}>>)
endif()

include(cpu_compiled)
include(parts)
foreach(part IN LISTS dhp_parts)
  include(${dhp_file_of_${part}})
endforeach()
if(DHP_DEVICE STREQUAL "cuda" AND NOT TARGET dhp::cuda)
  message(FATAL_ERROR "DHP_DEVICE is cuda, but there is no dhp::cuda; the lines above say what is missing")
endif()
if(DHP_DEVICE STREQUAL "cuda")
  add_library(dhp::default_device ALIAS dhp::cuda)
else()
  add_library(dhp::default_device ALIAS dhp_cpu)
endif()
