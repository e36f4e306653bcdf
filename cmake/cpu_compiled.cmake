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
# Other templates of namespace dhp, for their arguments T. It pays for functions that are not inline. Those defined inside a
# class are: every user's compiler instantiates them again.
set(slice "const std::vector<const T*>&, const std::vector<T*>&, std::int64_t, std::int64_t, Reduce")
set(sizes "bool, bool, std::int64_t, std::int64_t, std::int64_t")
foreach(entry IN ITEMS
    "comm/reduce_slice|void comm::reduce_slice(${slice})|double,float,bf16,f16,std::int32_t,std::int64_t,std::uint8_t"
    "cpu/gemm|void cpu::serial_gemm(${sizes}, double, const T*, const T*, double, T*)|double,float"
    "cpu|class RankLauncher<T>|Cpu"
    "cpu|AnyReducer<T> make_reducer(T&, ParameterStore<T>&, Comm<T>, const ReducerChoice&)|Cpu"
    "cpu|class TrainingRun<T>|Cpu")
  string(REGEX MATCH "^([^|]+)\\|([^|]+)\\|([^|]+)$" matched "${entry}")
  set(header "${CMAKE_MATCH_1}")
  set(template "${CMAKE_MATCH_2}")
  string(REPLACE "," ";" arguments "${CMAKE_MATCH_3}")
  set(name "${header}")  # its source
  if(NOT header MATCHES "/")
    string(REGEX REPLACE "^[A-Za-z<>]+ ([A-Za-z0-9_:]+)[<(].*$" "\\1" name "${template}")
    # It calls the kernels, which stand in sources of their own, and takes next to no time itself.
    string(MAKE_C_IDENTIFIER ${name} source)
    list(APPEND callers ${dir}/${source}.cpp)
    set(include_${source} "#include \"extern.hpp\"\n")
  endif()
  foreach(argument IN LISTS arguments)
    string(REGEX REPLACE "([^A-Za-z_])T([^A-Za-z_])" "\\1${argument}\\2" instance "${template}")
    list(APPEND instances "${name}|${header}|${instance}")
  endforeach()
endforeach()

if(DHP_DEVICE STREQUAL cuda)  # kernels only: nvcc need not read the rest
  list(FILTER instances EXCLUDE REGEX "\\|cpu\\|")
endif()

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
set_property(SOURCE ${callers} PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
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
