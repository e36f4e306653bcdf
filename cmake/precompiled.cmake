# dhp_precompiled: the CPU kernels for all element types, compiled once. Who links it gets the
# matching `extern template` lines by -include, so no source of tests and examples knows about it.
include(precompiled_ops)

set(dir ${CMAKE_CURRENT_BINARY_DIR}/precompiled)
set(headers "")
set(declarations "")
set(sources "")
foreach(entry IN LISTS DHP_PRECOMPILED_OPS)
  if(NOT entry MATCHES "^([a-z0-9_]+):([A-Za-z0-9]+)(:(.+))?$")
    message(FATAL_ERROR "precompiled_ops.cmake: '${entry}' is not header:Struct or header:Struct:types")
  endif()
  set(header ${CMAKE_MATCH_1})
  set(struct ${CMAKE_MATCH_2})
  set(types double float dhp::bf16 dhp::f16)
  if(CMAKE_MATCH_4)
    string(REPLACE "," ";" types "${CMAKE_MATCH_4}")
  endif()
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/include/dhp/cpu/${header}.hpp)
    continue()
  endif()

  list(APPEND headers ${header})
  set(definitions "#include <dhp/cpu/${header}.hpp>\n\n")
  foreach(type IN LISTS types)
    string(APPEND declarations "extern template struct dhp::cpu::${struct}<${type}>;\n")
    string(APPEND definitions "template struct dhp::cpu::${struct}<${type}>;\n")
  endforeach()
  # Several structs may live in one header; each gets a source, so that they compile side by side.
  file(CONFIGURE OUTPUT ${dir}/${struct}.cpp CONTENT "${definitions}" @ONLY)
  list(APPEND sources ${dir}/${struct}.cpp)
endforeach()
if(NOT sources)
  file(CONFIGURE OUTPUT ${dir}/none.cpp CONTENT "// no op is precompiled yet\n" @ONLY)
  set(sources ${dir}/none.cpp)
endif()
list(REMOVE_DUPLICATES headers)
list(TRANSFORM headers REPLACE "(.+)" "#include <dhp/cpu/\\1.hpp>\n" OUTPUT_VARIABLE includes)
list(JOIN includes "" includes)
file(CONFIGURE OUTPUT ${dir}/extern.hpp CONTENT "#pragma once\n${includes}\n${declarations}" @ONLY)

# An archive and not an object library: programs then carry only the kernels that they call.
add_library(dhp_precompiled STATIC EXCLUDE_FROM_ALL ${sources})
# In a tree for GPUs what links it is compiled by nvcc, without an -march.
target_link_libraries(dhp_precompiled PRIVATE $<IF:$<STREQUAL:${DHP_DEVICE},cpu>,dhp_cpu,dhp> dhp_build)
target_compile_options(dhp_precompiled
  # Nobody reads errno or floating-point traps; without the two flags loops with a square root or with a
  # choice between two values do not vectorise. They change no value.
  PRIVATE -fno-math-errno -fno-trapping-math $<$<CONFIG:Release>:-O3>
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX,CUDA>:SHELL:-include ${dir}/extern.hpp>")
