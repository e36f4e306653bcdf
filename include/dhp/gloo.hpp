// Ranks as processes over Gloo: connect_gloo and run_process_rank. Needs Gloo and OpenSSL; link dhp::gloo.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/gloo/connect.hpp>
