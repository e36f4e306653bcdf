include(headers_only)
dhp_find_headers(CLI11 CLI/CLI.hpp)
