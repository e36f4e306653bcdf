# dhp_find_headers(<package> <header>): find_package(<package>), or, without its CMake files, a
# <package>::<package> target from the header alone (-DCMAKE_PREFIX_PATH=FOLDER, header in FOLDER or
# its include).
macro(dhp_find_headers package header)
  find_package(${package} CONFIG QUIET)
  if(TARGET ${package}::${package})
    set(${package}_FOUND TRUE)
  else()
    find_path(DHP_${package}_INCLUDE ${header})
    mark_as_advanced(DHP_${package}_INCLUDE)
    set(${package}_FOUND FALSE)
    if(DHP_${package}_INCLUDE)
      set(${package}_FOUND TRUE)
      add_library(${package}::${package} INTERFACE IMPORTED GLOBAL)
      set_target_properties(${package}::${package} PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES ${DHP_${package}_INCLUDE})
    endif()
  endif()
endmacro()
