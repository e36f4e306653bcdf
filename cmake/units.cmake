# A unit compiles several files as one, because they read the same headers and instantiate the same templates.
set(DHP_UNIT_FILES 1 CACHE STRING "Files that are compiled as one unit; 1 suits editing")

# dhp_joined(<out> <name> <file>...): joins sources of this folder into one unit, if units are on.
function(dhp_joined out name)
  set(sources ${ARGN})
  if(DHP_UNIT_FILES GREATER 1)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/units/${name}.cpp)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    list(TRANSFORM ARGN REPLACE "(.+)" "#include <${folder}/\\1>\n")
    list(JOIN ARGN "" includes)
    file(CONFIGURE OUTPUT ${sources} CONTENT "${includes}" @ONLY)
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# dhp_units(<out> <program> <file>...): returns a program's sources in units of at most DHP_UNIT_FILES files. A unit
# begins with the includes of its files, then includes each file in its own namespace. A program with several units
# keeps slow files, which compile longest, apart from quick ones. A file is not put in a unit if it opens a namespace,
# specializes a template, defines a macro, or has the comment "not in a unit". Under nvcc slow files are not either,
# since several at once need too much memory.
function(dhp_units out program)
  set(alone ${ARGN})
  if(DHP_UNIT_FILES GREATER 1)
    set(alone "")
    list(LENGTH ARGN all)
    set(slow "")
    set(quick "")
    foreach(file IN LISTS ARGN)
      file(STRINGS ${file} own LIMIT_COUNT 1
        REGEX "^(namespace [a-z_:]+ {|template <>|#define|.*// not in a unit)")
      if(own OR (DHP_DEVICE STREQUAL "cuda" AND file MATCHES "_slow\\.cpp$"))
        list(APPEND alone ${file})
      elseif(file MATCHES "_slow\\.cpp$" AND all GREATER DHP_UNIT_FILES)
        list(APPEND slow ${file})
      else()
        list(APPEND quick ${file})
      endif()
    endforeach()
    set(number 0)
    foreach(files IN ITEMS slow quick)
      list(LENGTH ${files} count)
      # Units get equal shares: 13 files in units of at most 12 are 7 and 6.
      math(EXPR units "(${count} + ${DHP_UNIT_FILES} - 1) / ${DHP_UNIT_FILES}")
      while(units GREATER 0)
        math(EXPR size "(${count} + ${units} - 1) / ${units}")
        list(SUBLIST ${files} 0 ${size} mine)
        list(REMOVE_ITEM ${files} ${mine})
        math(EXPR number "${number} + 1")
        dhp_write_unit(${CMAKE_CURRENT_BINARY_DIR}/units/${program}_${number}.cpp ${mine})
        list(APPEND alone ${CMAKE_CURRENT_BINARY_DIR}/units/${program}_${number}.cpp)
        math(EXPR units "${units} - 1")
        math(EXPR count "${count} - ${size}")
      endwhile()
    endforeach()
  endif()
  set(${out} "${alone}" PARENT_SCOPE)
endfunction()

# dhp_write_unit(<unit> <file>...): writes the source of a unit.
function(dhp_write_unit unit)
  set(includes "")
  set(bodies "")
  foreach(file IN LISTS ARGN)
    # A change of the file's includes must update the head of the unit.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    file(STRINGS ${file} lines REGEX "^#(include|if|ifdef|ifndef|elif|else|endif)")
    list(TRANSFORM lines REPLACE "^#include \"(.*)\"" "#include <${folder}/\\1>")
    string(MAKE_C_IDENTIFIER ${path} name)
    # The unit's head has done the file's own includes, so inside the namespace they do nothing.
    list(APPEND includes ${lines})
    string(APPEND bodies "namespace ${name} {\n#include <${path}>\n}\n")
  endforeach()
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT ${unit} CONTENT "${includes}\n\n${bodies}" @ONLY)
endfunction()
