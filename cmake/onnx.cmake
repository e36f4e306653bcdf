# onnx::onnx: ONNX's graphs, as protocol buffers, and its checker. Debian's own package file for CMake names libraries that
# Debian does not have.
include_guard(GLOBAL)
find_package(Protobuf QUIET)
find_path(DHP_ONNX_INCLUDE onnx/checker.h)
find_library(DHP_ONNX_LIBRARY onnx)
find_library(DHP_ONNX_PROTO_LIBRARY onnx_proto)
mark_as_advanced(DHP_ONNX_INCLUDE DHP_ONNX_LIBRARY DHP_ONNX_PROTO_LIBRARY)
if(Protobuf_FOUND AND DHP_ONNX_INCLUDE AND DHP_ONNX_LIBRARY AND DHP_ONNX_PROTO_LIBRARY)
  add_library(onnx::onnx UNKNOWN IMPORTED)
  set_target_properties(onnx::onnx PROPERTIES IMPORTED_LOCATION ${DHP_ONNX_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DHP_ONNX_INCLUDE}
    INTERFACE_COMPILE_DEFINITIONS "ONNX_NAMESPACE=onnx;ONNX_ML=1"
    INTERFACE_LINK_LIBRARIES "${DHP_ONNX_PROTO_LIBRARY};protobuf::libprotobuf")
else()
  message(NOTICE "dhp: ONNX was not found (Debian: libonnx-dev libprotobuf-dev): export_onnx is not built")
endif()
