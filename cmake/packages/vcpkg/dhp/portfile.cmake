# An overlay port that installs its own tree: vcpkg install dhp --overlay-ports=cmake/packages/vcpkg
set(VCPKG_BUILD_TYPE release)  # dhp is header-only
cmake_path(SET tree NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../../../..)
vcpkg_cmake_configure(SOURCE_PATH ${tree} OPTIONS -DDHP_TESTS=OFF -DDHP_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/dhp)
vcpkg_install_copyright(FILE_LIST ${tree}/LICENSE)
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/share/doc)
