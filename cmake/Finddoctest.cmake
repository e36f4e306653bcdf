include(headers_only)
dhp_find_headers(doctest doctest/doctest.h)
