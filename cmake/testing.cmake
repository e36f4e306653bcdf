# Registers tests. A test belongs to a folder (its first label) and is quick, slow or acceptance (its second label).
# Acceptance tests take minutes: .ci/run and `tests/run.sh --all` run them.
include(units)

# Time limits allow for sanitizers, which slow programs down tenfold.
set(dhp_time_factor 1)
if(DHP_SANITIZE)
  set(dhp_time_factor 6)
endif()

# dhp_label_test(<test> <folder> <quick|slow|acceptance>). `ctest -j 8` runs two computing tests, or a timed one of 6
# PROCESSORS, and two waiting ones, which dhp_waiting_tests(<test>...) marks. Long tests start first.
function(dhp_label_test test folder speed)
  math(EXPR seconds "3600 * ${dhp_time_factor}")  # only a hang takes this long, even on a busy machine
  set(speeds quick slow acceptance)
  list(FIND speeds ${speed} cost)
  set_tests_properties(${test} PROPERTIES LABELS "${folder};${speed}" TIMEOUT ${seconds} PROCESSORS 3 COST ${cost})
endfunction()
function(dhp_waiting_tests)
  foreach(test IN LISTS ARGN)
    if(TEST ${test})  # its library may be missing
      set_tests_properties(${test} PROPERTIES PROCESSORS 1)
    endif()
  endforeach()
endfunction()

# Prefix of commands that need a GPU, which the machine of a GPU tree may lack.
set(dhp_on_gpu "")
if(DHP_DEVICE STREQUAL "cuda")
  add_executable(gpu_present ${PROJECT_SOURCE_DIR}/tests/support/gpu_present.cpp)
  target_link_libraries(gpu_present PRIVATE dhp::cuda dhp_build)
  set(dhp_on_gpu ${PROJECT_SOURCE_DIR}/tests/support/on_gpu.sh $<TARGET_FILE:gpu_present>)
endif()

# Prefix of commands that query cuDNN, which looks for the driver's library: without a driver they use a stub of
# tests/support. Only the test itself loads it; in LD_LIBRARY_PATH other programs would take the stub for a driver.
set(dhp_with_driver_stub "")
if(TARGET dhp::cuda)
  add_library(dhp_driver SHARED ${PROJECT_SOURCE_DIR}/tests/support/driver.cpp)
  set_target_properties(dhp_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 NO_SONAME ON
    LINK_OPTIONS -Wl,-soname,libcuda.so.1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/driver)
  target_link_libraries(dhp_driver PRIVATE dhp_build)
  set(dhp_with_driver_stub ${CMAKE_COMMAND} -E env DHP_DRIVER_STUB=$<TARGET_FILE:dhp_driver>)
endif()

# dhp_doctest_entries(<folder> <program> <files> [<prefix>...]): adds one ctest entry per file. The file's path names
# it: comm/gloo/store.cpp is comm.gloo.store.
function(dhp_doctest_entries folder target files)
  foreach(file IN LISTS files)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE path)
    cmake_path(REMOVE_EXTENSION path OUTPUT_VARIABLE test)
    string(REPLACE "/" "." test ${test})
    add_test(NAME ${test} COMMAND ${ARGN} $<TARGET_FILE:${target}> --source-file=*/tests/${path})
    # doctest succeeds if no case matches, but this test must fail then.
    set_tests_properties(${test} PROPERTIES
      FAIL_REGULAR_EXPRESSION "test cases: +0 " SKIP_RETURN_CODE 77)
    if(test MATCHES "_slow$")
      dhp_label_test(${test} ${folder} slow)
    else()
      dhp_label_test(${test} ${folder} quick)
    endif()
  endforeach()
endfunction()

# dhp_doctest_program(<program> <file>...): adds doctest's main and a check that every case belongs to a file's entry.
# Sets `sources`.
function(dhp_doctest_program target)
  dhp_units(sources ${target} ${ARGN})
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE dhp_doctest_main dhp_files dhp_build)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # A case in a shared header would belong to no file's entry and never run.
  string(REGEX REPLACE "^test_" "structure.cases_of_" test ${target})
  add_test(NAME ${test} COMMAND ${PROJECT_SOURCE_DIR}/tests/structure/cases.sh
    $<TARGET_FILE:${target}> ${ARGN})
  dhp_label_test(${test} structure quick)
  set(sources "${sources}" PARENT_SCOPE)
endfunction()

# dhp_typed_tests(<folder> <program> <parts> <file>...): adds a program of files that may be typed over the tree's
# device, linked with <parts>.
function(dhp_typed_tests folder target parts)
  dhp_doctest_program(${target} ${ARGN})
  dhp_doctest_entries(${folder} ${target} "${ARGN}" ${dhp_on_gpu})
  dhp_device_sources(${sources})
  target_link_libraries(${target} PRIVATE dhp_device ${parts})
  # The kernels and the framework are compiled apart. Tests that compute element by element are optimized too; the
  # others compile faster without. Under AddressSanitizer, besides the kernels, only ops/ is optimized.
  if(dhp_cuda_optimized)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-O1>)
  endif()
  set(optimized -O0)
  if(folder MATCHES "^(tensor|ops|cuda|bert|gpt)$")
    set(optimized -Og)
  endif()
  if(NOT DHP_SANITIZE OR folder STREQUAL ops)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${optimized}>)
  endif()
  # A fortified longjmp would reject jumps between the stacks of tests/cuda/emulator.hpp.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE>)
  # Tests of lower layers than ops, and of the texts of examples/{bert,gpt}, need no kernels and should not parse them.
  if(NOT folder MATCHES "^(core|device|tensor|comm|data|bert|gpt)$")
    target_link_libraries(${target} PRIVATE dhp_cpu_compiled)
  endif()
endfunction()

# dhp_doctest_folder(<folder> <file>...): adds one executable for a folder, since linking costs more than most tests do.
# Files that need CUDA's libraries, but not nvcc, are a second executable. In GPU trees files with the ops of whole
# models are a third: they compile longest, and library and kernel versions of gemm have the same name.
function(dhp_doctest_folder folder)
  dhp_sort_tests(${ARGN})
  if(DHP_DEVICE STREQUAL "cuda")
    set(files ${on_device})
    if(whole)
      list(REMOVE_ITEM files ${whole})
    endif()
    set(hosted ${libraries} ${gpu})
  else()
    set(files ${plain} ${on_device})
    set(hosted ${libraries})
  endif()

  if(files)
    dhp_typed_tests(${folder} test_${folder} "${parts}" ${files})
  endif()
  if(whole)
    dhp_typed_tests(${folder} test_${folder}_whole "${parts}" ${whole})
  endif()

  set(target test_${folder})
  if(hosted AND NOT DHP_SANITIZE)
    dhp_doctest_program(${target}_libraries ${hosted})
    add_dependencies(${target}_libraries dhp_driver)
    target_link_libraries(${target}_libraries PRIVATE
      dhp::cuda $<$<TARGET_EXISTS:dhp::nccl>:dhp::nccl> ${parts})
    dhp_doctest_entries(${folder} ${target}_libraries "${libraries}" ${dhp_with_driver_stub})
    if(DHP_DEVICE STREQUAL "cuda")
      dhp_doctest_entries(${folder} ${target}_libraries "${gpu}" ${dhp_on_gpu})
    endif()
  endif()
endfunction()

# dhp_script_test(<name> <folder> <quick|slow|acceptance> <command>...): adds a test that runs any program; its exit
# status 77 means skipped.
function(dhp_script_test test folder speed)
  add_test(NAME ${test} COMMAND ${ARGN})
  set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77)
  dhp_label_test(${test} ${folder} ${speed})
endfunction()

# dhp_python_test(<folder>.<name> <speed> <script> <argument>...): runs a script beside the CMakeLists.txt, if there is
# a Python and no sanitizer. An argument that names a program becomes its path.
function(dhp_python_test test speed script)
  if(NOT DHP_PYTHON OR DHP_SANITIZE)
    return()
  endif()
  set(arguments "")
  foreach(argument IN LISTS ARGN)
    if(TARGET ${argument})
      set(argument $<TARGET_FILE:${argument}>)
    endif()
    list(APPEND arguments ${argument})
  endforeach()
  string(REGEX MATCH "^[^.]+" folder ${test})
  dhp_script_test(${test} ${folder} ${speed} ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
    ${DHP_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${arguments})
endfunction()

# dhp_built_on_demand(<folder> <name> <target>...): marks programs that only acceptance tests use; a test builds them
# first. `tests/run.sh --all` builds those of all tests at once.
add_custom_target(acceptance_programs)
function(dhp_built_on_demand folder name)
  add_dependencies(acceptance_programs ${ARGN})
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
  dhp_script_test(${folder}.${name}_are_built ${folder} acceptance
    ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target ${ARGN})
  set_tests_properties(${folder}.${name}_are_built PROPERTIES RUN_SERIAL ON FIXTURES_SETUP ${name})
endfunction()

# The compile command of a user of the headers, for tests that run a compiler.
set(dhp_compile ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR})
if(DHP_CPU_ARCH)
  list(APPEND dhp_compile -march=${DHP_CPU_ARCH})
endif()
set(dhp_eigen_headers "")
if(TARGET dhp::eigen)
  get_target_property(dhp_eigen_headers Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
  list(TRANSFORM dhp_eigen_headers PREPEND "-isystem")
  list(APPEND dhp_compile ${dhp_eigen_headers})
endif()
