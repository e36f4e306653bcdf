# dhp_files: the libraries of the file readers (.gz, PNG, JPEG) and of BERT's tokenizer (Unicode). Each is optional;
# code asks for DHP_HAS_ZLIB, DHP_HAS_PNG, DHP_HAS_JPEG and DHP_HAS_UTF8PROC.
add_library(dhp_files INTERFACE)
target_link_libraries(dhp_files INTERFACE dhp)

# dhp_file_library(<library> <sentence> <include directory> <library file>)
function(dhp_file_library library sentence include file)
  if(NOT include OR NOT file)
    message(NOTICE "dhp: ${sentence}")
    return()
  endif()
  target_include_directories(dhp_files SYSTEM INTERFACE ${include})
  target_link_libraries(dhp_files INTERFACE ${file})
  target_compile_definitions(dhp_files INTERFACE DHP_HAS_${library}=1)
endfunction()

find_package(ZLIB QUIET)
find_package(PNG QUIET)
foreach(name IN ITEMS turbojpeg utf8proc)
  string(TOUPPER ${name} upper)
  find_path(DHP_${upper}_INCLUDE ${name}.h)
  find_library(DHP_${upper}_LIBRARY ${name})
  mark_as_advanced(DHP_${upper}_INCLUDE DHP_${upper}_LIBRARY)
endforeach()
dhp_file_library(ZLIB "zlib was not found (Debian: zlib1g-dev): .gz files cannot be read"
  "${ZLIB_INCLUDE_DIRS}" "${ZLIB_LIBRARIES}")
dhp_file_library(PNG "libpng was not found (Debian: libpng-dev): PNG files cannot be read"
  "${PNG_INCLUDE_DIRS}" "${PNG_LIBRARIES}")
dhp_file_library(JPEG "TurboJPEG was not found (Debian: libturbojpeg0-dev): JPEG files cannot be read"
  "${DHP_TURBOJPEG_INCLUDE}" "${DHP_TURBOJPEG_LIBRARY}")
dhp_file_library(UTF8PROC "utf8proc was not found (Debian: libutf8proc-dev): train_bert reads no text, only synthetic"
  "${DHP_UTF8PROC_INCLUDE}" "${DHP_UTF8PROC_LIBRARY}")
