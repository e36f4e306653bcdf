# The version's only source is a header, so code and packages agree.
set(dhp_version)
foreach(part IN ITEMS major minor patch)
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../include/dhp/core/config.hpp line
    REGEX "int version_${part} = [0-9]+")
  if(NOT line MATCHES "= ([0-9]+)")
    message(FATAL_ERROR "include/dhp/core/config.hpp does not define version_${part}")
  endif()
  list(APPEND dhp_version ${CMAKE_MATCH_1})
endforeach()
list(JOIN dhp_version "." dhp_version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_LIST_DIR}/../include/dhp/core/config.hpp)
