# cpack makes two Debian packages of a build tree: libdhp-dev (component headers) and dhp-tools (component programs;
# dhp-tools-cuda in a GPU tree). docs/packages.md has the commands. A plain `cmake --install` installs the headers only.
set(DHP_MAINTAINER "dhp maintainers <maintainers@dhp.example.org>" CACHE STRING "Who answers for the Debian packages")
set(DHP_HOMEPAGE "" CACHE STRING "Address that the Debian packages give as the project's")
mark_as_advanced(DHP_MAINTAINER DHP_HOMEPAGE)

set(CPACK_COMPONENTS_ALL headers)
set(programs "")
foreach(program IN ITEMS train_bert train_gpt train_resnet50 score_bert score_gpt score_resnet50
    dhp_compare dhp_replay dhp_doctor dhp_plan dhp_schedules dhp_goodput export_onnx)
  if(TARGET ${program})
    list(APPEND programs ${program})
  endif()
endforeach()
if(programs)
  if(DHP_DEVICE STREQUAL "cuda")  # the toolkit's libraries are in no system folder
    set_target_properties(${programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  install(TARGETS ${programs} COMPONENT programs EXCLUDE_FROM_ALL)
  add_custom_target(programs DEPENDS ${programs})
  list(APPEND CPACK_COMPONENTS_ALL programs)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own summary
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${DHP_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE ${DHP_HOMEPAGE})

set(CPACK_DEBIAN_HEADERS_PACKAGE_NAME libdhp-dev)
set(CPACK_DEBIAN_HEADERS_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_HEADERS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_HEADERS_PACKAGE_DEPENDS "g++ (>= 4:11) | g++-11 | g++-12 | g++-13 | g++-14 | clang-16")
set(CPACK_DEBIAN_HEADERS_PACKAGE_RECOMMENDS "cmake (>= 3.22), libssl-dev (>= 3)")
string(JOIN ", " CPACK_DEBIAN_HEADERS_PACKAGE_SUGGESTS
  dhp-tools libcurl4-openssl-dev libeigen3-dev libgloo-dev libopenmpi-dev nlohmann-json3-dev nvidia-cuda-toolkit)
set(CPACK_COMPONENT_HEADERS_DESCRIPTION "parallel neural-network training in C++20 (headers)
dhp trains neural networks in parallel: replicas share the samples (D), ranks
share each layer (H) or the layers (P), alone or together. It is a library of
headers, which on a CPU need only the standard library.
.
This package has the headers and their files for CMake: find_package(dhp).
Ranks that are processes need OpenSSL, and MPI or Gloo.")

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME dhp-tools)
set(other dhp-tools-cuda)
set(built_for "CPUs (${DHP_CPU_ARCH})")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS libdhp-dev)
if(DHP_DEVICE STREQUAL "cuda")
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME dhp-tools-cuda)
  set(other dhp-tools)
  set(built_for "NVIDIA GPUs (${CMAKE_CUDA_ARCHITECTURES})")
elseif(TARGET dhp::mpi)
  string(APPEND CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS ", openmpi-bin")
endif()
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONFLICTS ${other})
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_REPLACES ${other})
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "parallel neural-network training (programs)
Trains BERT, GPT and ResNet in parallel over samples, layers and parts of layers,
with threads of one process or with processes on many machines.
.
train_bert, train_gpt and train_resnet50 train, score_bert, score_gpt and
score_resnet50 write predictions, export_onnx writes ONNX files, dhp_doctor
examines a cluster, dhp_plan chooses a layout for it, dhp_schedules and
dhp_goodput compute what schedules and failures cost, and dhp_compare shows
which rank a hung job is waiting for.
.
This build is for ${built_for}.")

# Adds the documentation that Debian requires of each package. Its changelog has the release date.
file(STRINGS ${PROJECT_SOURCE_DIR}/CHANGELOG.md released REGEX "^## ${dhp_version} \\(.*\\)$")
if(NOT released MATCHES "\\(([0-9-]+)\\)")
  message(FATAL_ERROR "CHANGELOG.md has no line \"## ${dhp_version} (YEAR-MONTH-DAY)\"")
endif()
set(released ${CMAKE_MATCH_1})
string(SUBSTRING ${released} 0 4 year)
execute_process(COMMAND date -R -u -d ${released} OUTPUT_VARIABLE released OUTPUT_STRIP_TRAILING_WHITESPACE)
set(dir ${PROJECT_BINARY_DIR}/packages)
file(CONFIGURE OUTPUT ${dir}/copyright CONTENT
"dhp
Copyright: ${year} ${DHP_MAINTAINER}
License: Apache-2.0. On Debian systems its text is in /usr/share/common-licenses/Apache-2.0.
")
foreach(component IN ITEMS HEADERS PROGRAMS)
  set(package ${CPACK_DEBIAN_${component}_PACKAGE_NAME})
  file(CONFIGURE OUTPUT ${dir}/${package}/changelog.Debian CONTENT
"${package} (${dhp_version}-1) unstable; urgency=medium

  * Version ${dhp_version}.

 -- ${DHP_MAINTAINER}  ${released}
")
  execute_process(COMMAND gzip -9nkf ${dir}/${package}/changelog.Debian)
  string(TOLOWER ${component} component)
  install(FILES ${dir}/${package}/changelog.Debian.gz ${dir}/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
# Folders are for all users, also if the builder's umask is 077.
file(CONFIGURE OUTPUT ${dir}/folders.cmake CONTENT "file(CHMOD_RECURSE \${CPACK_TEMPORARY_INSTALL_DIRECTORY}
  DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)\n" @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${dir}/folders.cmake)
include(CPack)
