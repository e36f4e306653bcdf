# dhp_files: the libraries of the file readers (.gz, PNG, JPEG). Each is optional; code asks for
# DHP_HAS_ZLIB, DHP_HAS_PNG and DHP_HAS_JPEG.
add_library(dhp_files INTERFACE)
target_link_libraries(dhp_files INTERFACE dhp)
foreach(library IN ITEMS ZLIB PNG JPEG)
  find_package(${library} QUIET)
  if(${library}_FOUND)
    target_link_libraries(dhp_files INTERFACE ${library}::${library})
    target_compile_definitions(dhp_files INTERFACE DHP_HAS_${library}=1)
  else()
    message(STATUS "${library} was not found: its files cannot be read")
  endif()
endforeach()
