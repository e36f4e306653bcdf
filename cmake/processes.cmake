# dhp::processes is dhp::dhp for ranks that are processes of their own: the stores in which they meet prove by
# OpenSSL's libcrypto that they belong to one job. Like dhp::cuda it is made where it is used, by dhp's own build
# and by find_package(dhp), since every machine has its OpenSSL elsewhere.
include_guard(GLOBAL)
find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto)
if(TARGET OpenSSL::Crypto)
  add_library(dhp::processes INTERFACE IMPORTED GLOBAL)
  target_link_libraries(dhp::processes INTERFACE dhp::dhp OpenSSL::Crypto)
elseif(NOT dhp_FIND_QUIETLY)
  message(STATUS
    "dhp: OpenSSL was not found, so there is no dhp::processes: ranks are threads of one process only")
endif()
