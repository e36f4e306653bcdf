# dhp::processes: dhp::dhp for ranks that are processes; OpenSSL's libcrypto authenticates them.
# dhp::gloo: dhp::processes with Gloo, a transport between CPUs.
# dhp::etcd: dhp::processes with libcurl and nlohmann/json, for a store in a cluster of etcd.
# Both dhp's build and find_package(dhp) create them, because libraries are in different places.
include_guard(GLOBAL)
find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto)
if(TARGET OpenSSL::Crypto)
  add_library(dhp::processes INTERFACE IMPORTED GLOBAL)
  target_link_libraries(dhp::processes INTERFACE dhp::dhp OpenSSL::Crypto)
  target_compile_definitions(dhp::processes INTERFACE DHP_HAS_PROCESSES=1)
elseif(NOT dhp_FIND_QUIETLY)
  message(STATUS
    "dhp: OpenSSL was not found, so there is no dhp::processes: ranks are threads of one process only")
endif()

if(TARGET dhp::processes)
  find_path(DHP_GLOO_INCLUDE gloo/rendezvous/context.h)
  find_library(DHP_GLOO_LIBRARY gloo)
  mark_as_advanced(DHP_GLOO_INCLUDE DHP_GLOO_LIBRARY)
  set(refused "it was not found (Debian: libgloo-dev)")
  if(DHP_GLOO_INCLUDE AND DHP_GLOO_LIBRARY)
    include(CheckCXXSourceCompiles)
    include(CMakePushCheckState)
    cmake_push_check_state(RESET)
    set(CMAKE_REQUIRED_INCLUDES ${DHP_GLOO_INCLUDE})
    set(CMAKE_REQUIRED_LIBRARIES ${DHP_GLOO_LIBRARY} Threads::Threads)
    set(CMAKE_REQUIRED_QUIET TRUE)
    set(CMAKE_CXX_STANDARD 20)
    check_cxx_source_compiles("
      #include <gloo/rendezvous/context.h>
      #include <gloo/transport/tcp/device.h>
      #include <gloo/transport/unbound_buffer.h>
      int main() {
        gloo::rendezvous::Context context(0, 1);
        return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(\"127.0.0.1\")) == nullptr;
      }" DHP_GLOO_COMPILES)
    cmake_pop_check_state()
    set(refused "a program of a few lines with ${DHP_GLOO_LIBRARY} does not compile")
  endif()
  if(DHP_GLOO_COMPILES)
    add_library(dhp::gloo INTERFACE IMPORTED GLOBAL)
    set_target_properties(dhp::gloo PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${DHP_GLOO_INCLUDE}")
    target_link_libraries(dhp::gloo INTERFACE dhp::processes "${DHP_GLOO_LIBRARY}")
    target_compile_definitions(dhp::gloo INTERFACE DHP_HAS_GLOO=1)
  endif()
  if(NOT dhp_FIND_QUIETLY)
    if(TARGET dhp::gloo)
      message(STATUS "dhp: Gloo: ${DHP_GLOO_LIBRARY}")
    else()
      message(STATUS "dhp: there is no dhp::gloo: ${refused}")
    endif()
  endif()
endif()

if(TARGET dhp::processes)
  find_package(CURL 7.62 QUIET)
  find_package(nlohmann_json QUIET)
  if(TARGET CURL::libcurl AND TARGET nlohmann_json::nlohmann_json)
    add_library(dhp::etcd INTERFACE IMPORTED GLOBAL)
    target_link_libraries(dhp::etcd INTERFACE dhp::processes CURL::libcurl nlohmann_json::nlohmann_json)
    target_compile_definitions(dhp::etcd INTERFACE DHP_HAS_ETCD=1)
    set(found "etcd: by libcurl ${CURL_VERSION_STRING}")
  else()
    set(found "there is no dhp::etcd: libcurl (Debian: libcurl4-openssl-dev) or nlohmann/json was not found")
  endif()
  if(NOT dhp_FIND_QUIETLY)
    message(STATUS "dhp: ${found}")
  endif()
endif()
