# dhp::cpu_compiled is dhp::cpu with the templates below compiled once. It shortens edits; dhp's own tests and examples
# use it. Programs that link it get the matching `extern template` lines by -include; their sources do not change.
# The project that links it builds it with its own flags, because -march must be the same for a whole program. Nothing
# is built if nobody links it.
include_guard(GLOBAL)
if(NOT CMAKE_CXX_COMPILER_LOADED)
  return()
endif()

# One line each: header:template:arguments, in namespace dhp. Only functions that are defined outside their class are
# compiled once: those inside are inline, so every user's compiler instantiates them again.
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

# In a tree for GPUs they only compute reference results.
set(optimised -O3)
if(DHP_DEVICE STREQUAL cuda)
  set(optimised -O1)
endif()
# An archive and not an object library: programs then carry only the kernels that they call.
add_library(dhp_cpu_compiled STATIC EXCLUDE_FROM_ALL ${sources})
add_library(dhp::cpu_compiled ALIAS dhp_cpu_compiled)
# In a tree for GPUs nvcc compiles the programs that link it, without an -march.
target_link_libraries(dhp_cpu_compiled PUBLIC $<IF:$<STREQUAL:${DHP_DEVICE},cuda>,dhp::dhp,dhp::cpu>)
target_compile_options(dhp_cpu_compiled
  # errno and floating-point traps are not read. Without the two flags, loops with a square root or with a
  # choice between two values do not vectorise. They change no value.
  PRIVATE -fno-math-errno -fno-trapping-math $<$<CONFIG:Release,RelWithDebInfo>:${optimised}>
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX,CUDA>:SHELL:-include ${dir}/extern.hpp>")
