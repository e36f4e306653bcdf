# dhp::cpu_compiled is dhp::cpu with what costs a compiler most built once: for short edits, and for dhp's own tests and
# examples. Programs that link it get the matching `extern template` lines by -include, and no source knows about it.
# It is built where it is used, with the flags of that project, since -march must be one for a whole program; nothing is
# built where nobody links it.
include_guard(GLOBAL)
if(NOT CMAKE_CXX_COMPILER_LOADED)
  return()
endif()

# header:template:arguments, one line each, of namespace dhp. It pays for functions that are defined outside their class:
# those inside are inline, and compiled again by everyone.
set(types double,float,bf16,f16)
set(dhp_cpu_compiled
  cpu/gemm:cpu::Gemm:double,float
  cpu/gemm:cpu::MatrixProduct:${types}
  cpu/conv2d:cpu::Conv2d:${types}
  cpu/pool:cpu::Pool:${types}
  cpu/activation:cpu::ActivationKernel:${types}
  cpu/attention:cpu::AttentionKernel:${types}
  cpu/batch_norm:cpu::BatchNormKernel:${types}
  cpu/cross_entropy:cpu::CrossEntropyKernel:${types}
  cpu/dropout:cpu::DropoutKernel:${types}
  cpu/elementwise:cpu::Elementwise:${types}
  cpu/embedding:cpu::EmbeddingKernel:${types}
  cpu/fold:cpu::Fold:double,float
  cpu/layer_norm:cpu::LayerNormKernel:${types}
  cpu/optimizer:cpu::OptimizerKernel:${types}
  cpu/reduce:cpu::Reductions:${types}
  cpu/rows:cpu::Rows:${types}
)

set(dir ${CMAKE_CURRENT_BINARY_DIR}/dhp_cpu_compiled)
set(includes "")
set(declarations "")
set(sources "")
foreach(entry IN LISTS dhp_cpu_compiled)
  string(REGEX MATCH "^([a-z0-9_/]+):([A-Za-z0-9_:]+):([^:]+)$" matched "${entry}")
  set(include "#include <dhp/${CMAKE_MATCH_1}.hpp>\n")
  set(template ${CMAKE_MATCH_2})
  string(REPLACE "," ";" arguments "${CMAKE_MATCH_3}")
  set(definitions "")
  foreach(argument IN LISTS arguments)
    string(APPEND definitions "template struct ${template}<${argument}>;\n")
    string(APPEND declarations "extern template struct ${template}<${argument}>;\n")
  endforeach()
  # A source each, so that they compile side by side.
  string(MAKE_C_IDENTIFIER ${template} source)
  file(CONFIGURE OUTPUT ${dir}/${source}.cpp CONTENT "${include}\nnamespace dhp {\n${definitions}}\n" @ONLY)
  list(APPEND sources ${dir}/${source}.cpp)
  list(APPEND includes ${include})
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "" includes)
file(CONFIGURE OUTPUT ${dir}/extern.hpp CONTENT "#pragma once\n${includes}\nnamespace dhp {\n${declarations}}\n" @ONLY)

# In a tree for GPUs they are what results are compared with, and nothing else.
set(optimised -O3)
if(DHP_DEVICE STREQUAL cuda)
  set(optimised -O1)
endif()
# An archive and not an object library: programs then carry only the kernels that they call.
add_library(dhp_cpu_compiled STATIC EXCLUDE_FROM_ALL ${sources})
add_library(dhp::cpu_compiled ALIAS dhp_cpu_compiled)
# In a tree for GPUs what links it is compiled by nvcc, without an -march.
target_link_libraries(dhp_cpu_compiled PUBLIC $<IF:$<STREQUAL:${DHP_DEVICE},cuda>,dhp::dhp,dhp::cpu>)
target_compile_options(dhp_cpu_compiled
  # Nobody reads errno or floating-point traps; without the two flags loops with a square root or with a
  # choice between two values do not vectorise. They change no value.
  PRIVATE -fno-math-errno -fno-trapping-math $<$<CONFIG:Release,RelWithDebInfo>:${optimised}>
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX,CUDA>:SHELL:-include ${dir}/extern.hpp>")
