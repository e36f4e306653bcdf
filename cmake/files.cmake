# Finds libraries of dhp's own programs: JSON, the command line and tests; and dhp_files, optional libraries of the file
# readers (.gz, PNG, JPEG) and of BERT's tokenizer (Unicode). The code tests DHP_HAS_ZLIB, DHP_HAS_PNG, DHP_HAS_JPEG and
# DHP_HAS_UTF8PROC.
dhp_library(nlohmann_json DEBIAN nlohmann-json3-dev WITHOUT "only the lessons are built" PACKAGE nlohmann_json CONFIG
  TARGET nlohmann_json::nlohmann_json HEADERS_ONLY HEADERS nlohmann/json.hpp USE "sizeof(nlohmann::json)")
dhp_library(CLI11 DEBIAN libcli11-dev WITHOUT "only the lessons are built" PACKAGE CLI11 CONFIG TARGET CLI11::CLI11
  HEADERS_ONLY HEADERS CLI/CLI.hpp USE "CLI11_VERSION")
if(DHP_TESTS)
  dhp_library(doctest DEBIAN doctest-dev WITHOUT "there are no tests" PACKAGE doctest CONFIG TARGET doctest::doctest
    HEADERS_ONLY HEADERS doctest/doctest.h DEFINITIONS DOCTEST_CONFIG_DISABLE USE "DOCTEST_VERSION_MAJOR")
endif()
dhp_library(zlib DEBIAN zlib1g-dev WITHOUT ".gz files cannot be read" PACKAGE ZLIB TARGET ZLIB::ZLIB
  HEADERS zlib.h USE "zlibVersion()")
dhp_library(png DEBIAN libpng-dev WITHOUT "PNG files cannot be read" PACKAGE PNG TARGET PNG::PNG
  HEADERS png.h USE "png_access_version_number()")
dhp_library(jpeg DEBIAN libjpeg-dev WITHOUT "JPEG files cannot be read" LIBRARIES jpeg
  HEADERS jpeglib.h USE "&jpeg_crop_scanline")
dhp_library(utf8proc DEBIAN libutf8proc-dev WITHOUT "train_bert reads no text, only --data synthetic" LIBRARIES utf8proc
  HEADERS utf8proc.h USE "utf8proc_version()")
add_library(dhp_files INTERFACE)
target_link_libraries(dhp_files INTERFACE dhp)
# The libraries of file readers, and a pattern of the headers that need each, by which tests find what they need.
set(dhp_headers_of_lib_zlib "^zlib[.]h")
set(dhp_headers_of_lib_png "^png[.]h")
set(dhp_headers_of_lib_jpeg "^jpeglib[.]h")
set(dhp_headers_of_lib_utf8proc "^utf8proc[.]h")
set(dhp_file_libraries "")
foreach(library IN ITEMS zlib png jpeg utf8proc)
  list(APPEND dhp_file_libraries lib_${library})
  if(TARGET dhp::lib_${library})
    string(TOUPPER ${library} upper)
    target_link_libraries(dhp_files INTERFACE dhp::lib_${library})
    target_compile_definitions(dhp_files INTERFACE DHP_HAS_${upper}=1)
  endif()
endforeach()
