# An export set per device, because who has no CUDA must still find the rest.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(dhp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dhp)

install(TARGETS dhp EXPORT dhpTargets FILE_SET HEADERS)
install(EXPORT dhpTargets NAMESPACE dhp:: DESTINATION ${dhp_package_dir})
export(EXPORT dhpTargets NAMESPACE dhp:: FILE ${PROJECT_BINARY_DIR}/dhpTargets.cmake)
foreach(device IN ITEMS cpu cuda)
  if(TARGET dhp_${device})
    install(TARGETS dhp_${device} EXPORT dhp_${device}Targets)
    install(EXPORT dhp_${device}Targets NAMESPACE dhp:: DESTINATION ${dhp_package_dir})
    export(EXPORT dhp_${device}Targets NAMESPACE dhp::
      FILE ${PROJECT_BINARY_DIR}/dhp_${device}Targets.cmake)
  endif()
endforeach()

configure_package_config_file(cmake/dhpConfig.cmake.in dhpConfig.cmake
  INSTALL_DESTINATION ${dhp_package_dir} NO_SET_AND_CHECK_MACRO)
# Headers are independent of the machine's word size.
write_basic_package_version_file(dhpConfigVersion.cmake
  COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/dhpConfig.cmake ${PROJECT_BINARY_DIR}/dhpConfigVersion.cmake
  DESTINATION ${dhp_package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
