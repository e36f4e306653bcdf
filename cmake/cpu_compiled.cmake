# dhp::cpu_compiled is dhp::cpu with the templates below compiled once. It shortens edits; dhp's own tests and examples
# use it. Programs that link it get the matching `extern template` lines by -include; their sources do not change.
# The project that links it builds it with its own flags, because -march must be the same for a whole program. Nothing
# is built if nobody links it.
include_guard(GLOBAL)
if(NOT CMAKE_CXX_COMPILER_LOADED)
  return()
endif()

# One line each: header|declaration of a template of namespace dhp with its argument T|arguments for T. It pays for
# functions that are not inline. Those defined inside a class are: every user's compiler instantiates them again.
set(floating double,float,bf16,f16)
set(dhp_cpu_compiled
  "cpu/gemm|struct cpu::Gemm<T>|double,float"
  "cpu/gemm|struct cpu::MatrixProduct<T>|${floating}"
  "cpu/conv2d|struct cpu::Conv2d<T>|${floating}"
  "cpu/pool|struct cpu::Pool<T>|${floating}"
  "cpu/activation|struct cpu::ActivationKernel<T>|${floating}"
  "cpu/attention|struct cpu::AttentionKernel<T>|${floating}"
  "cpu/batch_norm|struct cpu::BatchNormKernel<T>|${floating}"
  "cpu/cross_entropy|struct cpu::CrossEntropyKernel<T>|${floating}"
  "cpu/dropout|struct cpu::DropoutKernel<T>|${floating}"
  "cpu/elementwise|struct cpu::Elementwise<T>|${floating}"
  "cpu/embedding|struct cpu::EmbeddingKernel<T>|${floating}"
  "cpu/exact_sum|struct cpu::ExactSum<T>|double,float"
  "cpu/layer_norm|struct cpu::LayerNormKernel<T>|${floating}"
  "cpu/optimizer|struct cpu::OptimizerKernel<T>|${floating}"
  "cpu/reduce|struct cpu::Reductions<T>|${floating}"
  "cpu/rows|struct cpu::Rows<T>|${floating}"
  "comm/reduce_slice|void comm::reduce_slice(const std::vector<const T*>&, const std::vector<T*>&, std::int64_t, std::int64_t, Reduce)|${floating},std::int32_t,std::int64_t,std::uint8_t"
  "cpu|class RankLauncher<T>|Cpu"
  "cpu|class TrainingRun<T>|Cpu"
)

if(DHP_DEVICE STREQUAL cuda)  # kernels only: nvcc need not read the rest
  list(FILTER dhp_cpu_compiled EXCLUDE REGEX "^cpu\\|")
endif()

set(dir ${CMAKE_CURRENT_BINARY_DIR}/dhp_cpu_compiled)
set(includes "")
set(declarations "")
set(sources "")
foreach(entry IN LISTS dhp_cpu_compiled)
  string(REGEX MATCH "^([^|]+)\\|([^|]+)\\|([^|]+)$" matched "${entry}")
  set(include "#include <dhp/${CMAKE_MATCH_1}.hpp>\n")
  set(template "${CMAKE_MATCH_2}")
  string(REPLACE "," ";" arguments "${CMAKE_MATCH_3}")
  set(definitions "")
  foreach(argument IN LISTS arguments)
    string(REGEX REPLACE "([^A-Za-z_])T([^A-Za-z_])" "\\1${argument}\\2" instance "template ${template}")
    string(APPEND definitions "${instance};\n")
    string(APPEND declarations "extern ${instance};\n")
  endforeach()
  # A source each, so that they compile side by side.
  string(REGEX REPLACE "^[a-z]+ ([A-Za-z0-9_:]+)[<(].*$" "\\1" source "${template}")
  string(MAKE_C_IDENTIFIER ${source} source)
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
