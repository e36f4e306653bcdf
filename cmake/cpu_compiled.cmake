# dhp::cpu_compiled is dhp::cpu with the templates of dhp/cpu_instances.ipp compiled once. It makes rebuilds after an
# edit shorter; dhp's own tests and examples use it. Programs that link it get the matching `extern template` lines by
# -include, without changes of their sources. The project that links it builds it with its own flags, because -march
# must be the same for a whole program. It is built only if a program links it.
include_guard(GLOBAL)
if(NOT CMAKE_CXX_COMPILER_LOADED)
  return()
endif()

# A function, because find_package(dhp) runs in the scope of the project that calls it.
function(dhp_add_cpu_compiled)
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/dhp_cpu_compiled)

  # Sections of the list compile in parallel. A GPU tree has the kernels only, so that nvcc need not read the framework.
  get_target_property(root dhp::dhp INTERFACE_INCLUDE_DIRECTORIES)
  string(REGEX REPLACE "^.<BUILD_INTERFACE:([^>]*)>.*" "\\1" root "${root}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/dhp/cpu_instances.ipp)
  file(READ ${root}/dhp/cpu_instances.ipp text)
  string(REPLACE ";" "|" text "${text}")
  string(REGEX REPLACE "\n}  // namespace dhp.*" "" text "${text}")
  string(REGEX REPLACE "\n// ([a-z0-9_/]+)\n" ";\\1|" sections "${text}")
  list(POP_FRONT sections)
  set(sources "")
  set(kernels 0)
  set(declarations "#pragma once\n")
  foreach(section IN LISTS sections)
    string(REGEX MATCH "^([^|]+)\\|(.*)$" matched "${section}")
    set(header ${CMAKE_MATCH_1})
    string(REPLACE "|" ";" instances "${CMAKE_MATCH_2}")
    if(header STREQUAL "framework")
      if(DHP_DEVICE STREQUAL "cuda")
        continue()
      endif()
      set(header cpu_declared)
    endif()
    string(MAKE_C_IDENTIFIER ${header} source)
    # Trees that are compiled once, and edited seldom, read the headers of kernels three times instead of for each.
    if((DHP_SANITIZE OR DHP_DEVICE STREQUAL "cuda") AND NOT header STREQUAL "cpu_declared")
      math(EXPR kernels "(${kernels} + 1) % 3")
      set(source kernels_${kernels})
    endif()
    list(APPEND sources ${dir}/${source}.cpp)
    string(REPLACE "DHP_INSTANCE" "template" definitions "${instances}")
    string(APPEND contents_of_${source} "#include <dhp/${header}.hpp>\nnamespace dhp {\n${definitions}\n}\n")
    file(CONFIGURE OUTPUT ${dir}/${source}.cpp CONTENT "${contents_of_${source}}" @ONLY)
    string(REPLACE "DHP_INSTANCE" "extern template" instances "${instances}")
    string(APPEND declarations "#include <dhp/${header}.hpp>\nnamespace dhp {\n${instances}\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES sources)
  file(CONFIGURE OUTPUT ${dir}/extern.hpp CONTENT "${declarations}" @ONLY)

  # In a GPU tree these kernels only compute reference results. Sanitizers need some -O, or tests wait for kernels.
  set(optimized $<$<CONFIG:Release,RelWithDebInfo>:-O3>)
  if(DHP_SANITIZE OR DHP_DEVICE STREQUAL "cuda")
    set(optimized -O1)
  endif()
  set_property(SOURCE ${dir}/cpu_declared.cpp PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O2>)
  # An archive instead of an object library, so that programs carry only the kernels that they call.
  add_library(dhp_cpu_compiled STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(dhp_cpu_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)  # for shared libraries, too
  add_library(dhp::cpu_compiled ALIAS dhp_cpu_compiled)
  # In a GPU tree nvcc compiles the programs that link this library, without an -march.
  target_link_libraries(dhp_cpu_compiled PUBLIC $<IF:$<STREQUAL:${DHP_DEVICE},cuda>,dhp::dhp,dhp::cpu>)
  target_compile_options(dhp_cpu_compiled
    # dhp reads neither errno nor floating-point traps. These two flags let loops with a square root, or with a choice
    # between two values, vectorize; they change no value.
    PRIVATE -fno-math-errno -fno-trapping-math ${optimized}
    INTERFACE "$<$<COMPILE_LANGUAGE:CXX,CUDA>:SHELL:-include \"${dir}/extern.hpp\">")
endfunction()
dhp_add_cpu_compiled()
