include(headers_only)
dhp_find_headers(nlohmann_json nlohmann/json.hpp)
