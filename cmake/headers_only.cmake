# dhp_find_headers(<package> <header>): as find_package(<package>), and where the package has no CMake files,
# as from a folder that holds nothing but headers (-DCMAKE_PREFIX_PATH=FOLDER, header in FOLDER or its
# include), <package>::<package> is made of the header alone.
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
