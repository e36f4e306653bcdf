# How tests are registered. A test belongs to a folder (its first label) and is quick or slow (its second).

# Sanitizers slow a program down tenfold; other work on the machine may halve its speed again.
set(dhp_time_factor 1)
if(DHP_SANITIZE)
  set(dhp_time_factor 6)
endif()

# dhp_label_test(<test> <folder> <quick|slow> [seconds])
function(dhp_label_test test folder speed)
  set(seconds 120)
  if(speed STREQUAL slow)
    set(seconds 900)
  endif()
  if(ARGC GREATER 3)
    set(seconds ${ARGV3})
  endif()
  math(EXPR seconds "${seconds} * ${dhp_time_factor}")
  set_tests_properties(${test} PROPERTIES LABELS "${folder};${speed}" TIMEOUT ${seconds})
endfunction()

# dhp_doctest_folder(<folder> <file>...): one executable for a folder, since linking costs more than
# most tests do; one ctest entry for each file of it.
function(dhp_doctest_folder folder)
  set(target test_${folder})
  dhp_program(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE dhp_doctest_main dhp_files)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # Folders to the left of the ops need no kernels, and should not pay for parsing them.
  if(NOT folder MATCHES "^(core|device|tensor|comm|data)$" AND DHP_DEVICE STREQUAL cpu)
    target_link_libraries(${target} PRIVATE dhp_precompiled)
  endif()
  foreach(file IN LISTS ARGN)
    cmake_path(GET file STEM name)
    set(test ${folder}.${name})
    add_test(NAME ${test} COMMAND ${target} --source-file=*/${name}.cpp)
    # doctest is content when no case matches; we are not.
    set_tests_properties(${test} PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 ")
    if(name MATCHES "_slow$")
      dhp_label_test(${test} ${folder} slow)
    else()
      dhp_label_test(${test} ${folder} quick)
    endif()
  endforeach()
  # A case that sits in a shared header would be in no file's entry, and so never run.
  add_test(NAME structure.cases_of_${folder} COMMAND ${PROJECT_SOURCE_DIR}/tests/structure/cases.sh
    $<TARGET_FILE:${target}> ${ARGN})
  dhp_label_test(structure.cases_of_${folder} structure quick)
endfunction()

# dhp_script_test(<name> <folder> <quick|slow> <command>...): any other program; 77 means skipped.
function(dhp_script_test test folder speed)
  add_test(NAME ${test} COMMAND ${ARGN})
  set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77)
  dhp_label_test(${test} ${folder} ${speed})
endfunction()

# dhp_add_compile_fail_test(<file>): the file must compile with -DGOOD and must not without; the
# compiler has to say what the file's line `// error: <text>` promises.
function(dhp_add_compile_fail_test file)
  cmake_path(ABSOLUTE_PATH file)
  cmake_path(GET file STEM name)
  cmake_path(GET file PARENT_PATH folder)
  string(REGEX REPLACE "/must_not_compile$" "" folder ${folder})
  cmake_path(GET folder FILENAME folder)
  dhp_script_test(${folder}.${name}_must_not_compile ${folder} quick
    ${PROJECT_SOURCE_DIR}/tests/support/must_not_compile.sh ${file} ${dhp_compile})
endfunction()

# The plain command that compiles a header's user: for checks that run a compiler at test time.
set(dhp_compile ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR})
if(DHP_CPU_ARCH)
  list(APPEND dhp_compile -march=${DHP_CPU_ARCH})
endif()
