# All headers in one translation unit, to find names that collide. Headers with missing libraries are left out.
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/dhp/*.hpp)
set(everything "")
foreach(header IN LISTS headers)
  dhp_reached_headers(reached ${PROJECT_SOURCE_DIR}/include/${header})
  list(FILTER reached INCLUDE REGEX "\\.hp*$")
  list(FILTER reached EXCLUDE REGEX "^dhp/")
  list(TRANSFORM reached REPLACE "(.+)" "&& __has_include(<\\1>)")
  string(JOIN " " found 1 ${reached})
  string(APPEND everything "#if ${found}\n#include <${header}>\n#endif\n")
endforeach()
file(CONFIGURE OUTPUT all_in_one.cpp CONTENT "${everything}" @ONLY)
add_library(headers_all_in_one OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/all_in_one.cpp)
target_link_libraries(headers_all_in_one PRIVATE ${here} dhp_files dhp_build)
target_compile_options(headers_all_in_one PRIVATE -O0)
dhp_script_test(headers.all_in_one headers slow ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR}
  --target headers_all_in_one)
