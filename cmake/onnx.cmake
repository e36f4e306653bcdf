# dhp::lib_ONNX: ONNX's graphs, as protocol buffers, and its checker. ONNX is not found through Debian's CMake package
# file, which names libraries that Debian does not have.
include_guard(GLOBAL)
dhp_library(Protobuf DEBIAN libprotobuf-dev WITHOUT "export_onnx is not built" PACKAGE Protobuf
  TARGET protobuf::libprotobuf HEADERS google/protobuf/message_lite.h
  USE "&google::protobuf::MessageLite::SerializeAsString")
if(TARGET dhp::lib_Protobuf)
  dhp_library(ONNX DEBIAN libonnx-dev WITHOUT "export_onnx is not built" HEADERS onnx/checker.h LIBRARIES onnx onnx_proto
    LINK dhp::lib_Protobuf DEFINITIONS ONNX_NAMESPACE=onnx ONNX_ML=1
    USE "static_cast<void (*)(const std::string&)>(&onnx::checker::check_model)")
endif()
