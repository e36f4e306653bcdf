# dhp::cpu_compiled and the parts are not exported; these files create them on the user's machine.
set(made_anew cmake/cpu_compiled.cmake cmake/library.cmake cmake/parts.cmake)
foreach(part IN LISTS dhp_parts)
  list(APPEND made_anew cmake/${dhp_file_of_${part}}.cmake)
endforeach()
list(REMOVE_DUPLICATES made_anew)
include(CMakePackageConfigHelpers)
set(dhp_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/dhp)  # the same folder on every architecture
# `cmake --install` installs component `headers`; packages.cmake adds component `programs`.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME headers)

install(TARGETS dhp dhp_cpu EXPORT dhpTargets)
install(DIRECTORY include/dhp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN *.hpp PATTERN *.ipp PATTERN *.cuh)
install(EXPORT dhpTargets NAMESPACE dhp:: DESTINATION ${dhp_package_dir})
export(EXPORT dhpTargets NAMESPACE dhp:: FILE ${PROJECT_BINARY_DIR}/dhpTargets.cmake)
file(COPY ${made_anew} cmake/cuda DESTINATION ${PROJECT_BINARY_DIR})
install(FILES ${made_anew} DESTINATION ${dhp_package_dir})
install(DIRECTORY cmake/cuda DESTINATION ${dhp_package_dir})

configure_package_config_file(cmake/dhpConfig.cmake.in dhpConfig.cmake
  INSTALL_DESTINATION ${dhp_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may rename things. Headers do not depend on the machine's word size.
write_basic_package_version_file(dhpConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/dhpConfig.cmake ${PROJECT_BINARY_DIR}/dhpConfigVersion.cmake
  DESTINATION ${dhp_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
