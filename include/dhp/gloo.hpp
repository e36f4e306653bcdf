// Processes over Gloo: connect_gloo and run_process_rank. Needs Gloo and OpenSSL; link dhp::gloo.
#pragma once

#include <dhp/comm/gloo/connect.hpp>
