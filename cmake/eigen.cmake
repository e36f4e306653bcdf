# dhp::eigen: dhp::dhp with Eigen, for dhp/eigen.hpp. Both dhp's build and find_package(dhp) create
# it.
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/library.cmake)
dhp_library(Eigen DEBIAN libeigen3-dev WITHOUT "there is no dhp::eigen" PACKAGE Eigen3 NO_MODULE TARGET Eigen3::Eigen
  VERSION 3.4 HEADERS_ONLY HEADERS Eigen/Core USE "Eigen::bfloat16()")
dhp_part(eigen dhp::dhp dhp::lib_Eigen)
