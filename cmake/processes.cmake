# dhp::processes: dhp::dhp for ranks that are processes, which OpenSSL's libcrypto authenticates.
# dhp::gloo: dhp::processes with Gloo, a transport between CPUs.
# dhp::etcd: dhp::processes with libcurl and nlohmann/json, for a key-value store in an etcd cluster.
# Both dhp's build and find_package(dhp) create them, because libraries are in different places.
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/library.cmake)
dhp_library(OpenSSL DEBIAN libssl-dev WITHOUT "ranks are threads of one process only" PACKAGE OpenSSL COMPONENTS Crypto
  TARGET OpenSSL::Crypto VERSION 3.0 HEADERS openssl/evp.h USE "EVP_sha256()")
dhp_part(processes dhp::dhp dhp::lib_OpenSSL)
if(NOT TARGET dhp::processes)
  return()
endif()
dhp_library(Gloo DEBIAN libgloo-dev WITHOUT "there is no dhp::gloo" LIBRARIES gloo
  HEADERS gloo/rendezvous/context.h gloo/transport/tcp/device.h gloo/transport/unbound_buffer.h
  USE "(gloo::rendezvous::Context(0, 1), gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(\"127.0.0.1\")))")
dhp_library(libcurl DEBIAN libcurl4-openssl-dev WITHOUT "there is no dhp::etcd" PACKAGE CURL TARGET CURL::libcurl
  VERSION 7.62 HEADERS curl/curl.h USE "curl_version()")
dhp_library(nlohmann_json DEBIAN nlohmann-json3-dev WITHOUT "there is no dhp::etcd" PACKAGE nlohmann_json CONFIG
  TARGET nlohmann_json::nlohmann_json HEADERS_ONLY HEADERS nlohmann/json.hpp USE "sizeof(nlohmann::json)")
dhp_part(gloo dhp::processes dhp::lib_Gloo)
dhp_part(etcd dhp::processes dhp::lib_libcurl dhp::lib_nlohmann_json)
