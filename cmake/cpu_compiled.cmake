# dhp::cpu_compiled is dhp::cpu with the templates below compiled once. It shortens edits; dhp's own tests and examples
# use it. Programs that link it get the matching `extern template` lines by -include; their sources do not change.
# The project that links it builds it with its own flags, because -march must be the same for a whole program. Nothing
# is built if nobody links it.
include_guard(GLOBAL)
if(NOT CMAKE_CXX_COMPILER_LOADED)
  return()
endif()

set(dir ${CMAKE_CURRENT_BINARY_DIR}/dhp_cpu_compiled)

# The kernels are read off the headers: every function <op>_on whose first argument is a Cpu.
get_target_property(root dhp::dhp HEADER_DIRS)
file(STRINGS ${root}/dhp/cpu.hpp headers REGEX "^#include <dhp/cpu/")
list(TRANSFORM headers REPLACE "^#include <dhp/(.*)\\.hpp>" "\\1")
set(instances "")
foreach(header IN LISTS headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/dhp/${header}.hpp)
  file(READ ${root}/dhp/${header}.hpp text)
  string(REGEX MATCHALL "\nvoid [a-z0-9_]+_on\\(std::same_as<Cpu> auto&[^{;.]*\\) {" functions "${text}")
  foreach(function IN LISTS functions)
    string(REGEX REPLACE "^\n(.*) {$" "\\1" function "${function}")
    string(REPLACE "std::same_as<Cpu> auto&" "Cpu&" function "${function}")
    list(APPEND instances "${header}|${header}|${function}")
  endforeach()
endforeach()
# Functions of namespace dhp, for their arguments T. It pays for those that are not inline.
set(slice "const comm::Inputs&, const comm::Outputs&, std::int64_t, std::int64_t, Reduce")
set(sizes "bool, bool, std::int64_t, std::int64_t, std::int64_t")
foreach(entry IN ITEMS
    "comm/reduce_slice|void comm::reduce_slice_of<T>(${slice})|double,float,bf16,f16,std::int32_t,std::int64_t,std::uint8_t"
    "cpu/gemm|void cpu::serial_gemm(${sizes}, double, const T*, const T*, double, T*)|double,float")
  string(REGEX MATCH "^([^|]+)\\|([^|]+)\\|([^|]+)$" matched "${entry}")
  set(header "${CMAKE_MATCH_1}")
  set(template "${CMAKE_MATCH_2}")
  string(REPLACE "," ";" arguments "${CMAKE_MATCH_3}")
  foreach(argument IN LISTS arguments)
    string(REGEX REPLACE "([^A-Za-z_])T([^A-Za-z_])" "\\1${argument}\\2" instance "${template}")
    list(APPEND instances "${header}|${header}|${instance}")
  endforeach()
endforeach()

# The framework: of all headers that cpu.hpp brings, each class of namespace dhp with the one parameter Dev, for the Cpu.
# A compiler that does not optimise then generates no code for its members, and one that does may still inline them.
# nvcc need not read it: a tree for GPUs has the kernels only.
set(framework "")
if(NOT DHP_DEVICE STREQUAL cuda)
  set(found dhp/cpu.hpp)
  set(at 0)
  list(LENGTH found end)
  while(at LESS end)
    list(GET found ${at} header)
    math(EXPR at "${at} + 1")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${header})
    set(nested FALSE)  # inside a namespace of namespace dhp
    set(before "")
    file(STRINGS ${root}/${header} lines REGEX "^[#a-z}]")
    foreach(line IN LISTS lines)
      if(line MATCHES "^#include <(dhp/[^>]+)>")
        list(APPEND found ${CMAKE_MATCH_1})
      elseif(line MATCHES "^namespace [a-z:]+ {" AND NOT line MATCHES "^namespace dhp {")
        set(nested TRUE)
      elseif(line MATCHES "^}  // namespace")
        set(nested FALSE)
      elseif(line MATCHES "^class ([A-Za-z0-9]+) [^\;]*{" AND before STREQUAL "template <class Dev>" AND NOT nested)
        list(APPEND framework "class ${CMAKE_MATCH_1}<Cpu>")
      endif()
      set(before "${line}")
    endforeach()
    list(REMOVE_DUPLICATES found)
    list(LENGTH found end)
  endwhile()
  set(model "DataParallel<Cpu, PipelineParallel<Cpu>, MakeReducer<Cpu>>")
  list(APPEND framework "class ${model}" "class Trainer<Cpu, ${model}>"
    "AnyReducer<Cpu> make_reducer(Cpu&, ParameterStore<Cpu>&, Comm<Cpu>, const ReducerChoice&)"
    "std::unique_ptr<Optimizer<Cpu>> make_optimizer(Cpu&, ParameterStore<Cpu>&, const Norms<Cpu>&, const OptimizerChoice&)")
endif()
list(TRANSFORM framework PREPEND "framework|cpu|")
list(APPEND instances ${framework})
# It calls the kernels, which stand in sources of their own, and takes next to no time itself.
set(include_framework "#include \"extern.hpp\"\n")

set(includes "")
set(declarations "")
set(sources "")
foreach(entry IN LISTS instances)
  string(REGEX MATCH "^([^|]+)\\|([^|]+)\\|(.+)$" matched "${entry}")
  string(MAKE_C_IDENTIFIER ${CMAKE_MATCH_1} source)
  list(APPEND sources ${source})
  set(include "#include <dhp/${CMAKE_MATCH_2}.hpp>\n")
  list(APPEND includes "${include}")
  if(NOT DEFINED include_${source})
    set(include_${source} "${include}")
  endif()
  string(APPEND definitions_${source} "template ${CMAKE_MATCH_3};\n")
  string(APPEND declarations "extern template ${CMAKE_MATCH_3};\n")
endforeach()
list(REMOVE_DUPLICATES sources)
foreach(source IN LISTS sources)  # they compile side by side
  file(CONFIGURE OUTPUT ${dir}/${source}.cpp @ONLY
    CONTENT "${include_${source}}\nnamespace dhp {\n${definitions_${source}}}\n")
endforeach()
list(TRANSFORM sources REPLACE "(.+)" "${dir}/\\1.cpp")
list(REMOVE_DUPLICATES includes)
list(JOIN includes "" includes)
file(CONFIGURE OUTPUT ${dir}/extern.hpp CONTENT "#pragma once\n${includes}\nnamespace dhp {\n${declarations}}\n" @ONLY)

# In a tree for GPUs kernels only compute reference results.
set(optimised -O3)
if(DHP_DEVICE STREQUAL cuda)
  set(optimised -O1)
endif()
set_property(SOURCE ${dir}/framework.cpp PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O2>)
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
