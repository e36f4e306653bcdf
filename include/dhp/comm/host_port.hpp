// HostPort: where something listens, as people write it: host, host:port, [::1]:port.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace dhp {

struct HostPort {
  std::string host;
  int port = 0;  // 0: none was given

  /// Throws where the text makes no sense; `what` is what it was given as. The brackets of an IPv6 address are not
  /// part of the host.
  [[nodiscard]] static HostPort parse(std::string_view what, std::string_view text) {
    const auto [host, rest] = split(what, text);
    if (rest.empty()) return {std::string(host), 0};
    return {std::string(host), port_number(what, rest.substr(1))};
  }
  /// A port, from 1 to 65535.
  [[nodiscard]] static int port_number(std::string_view what, std::string_view digits) {
    int port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    check(
        error == std::errc() && end == digits.data() + digits.size() && port >= 1 && port <= 65535,
        what, ": \"", digits, "\" is no port; ports are whole numbers from 1 to 65535");
    return port;
  }

 private:
  struct Halves {
    std::string_view host;
    std::string_view rest;  // empty, or a colon and what follows
  };
  static Halves split(std::string_view what, std::string_view text) {
    Halves halves{};
    if (text.starts_with('[')) {
      const auto end = text.find(']');
      check(end != text.npos, what, ": \"", text, "\" does not close its bracket");
      halves = {text.substr(1, end - 1), text.substr(end + 1)};
    } else {
      const auto colon = std::min(text.find(':'), text.size());
      halves = {text.substr(0, colon), text.substr(colon)};
      check(halves.rest.find(':', 1) == text.npos, what, ": \"", text,
            "\" is an IPv6 address without brackets; write [", text, "] or [", text, "]:port");
    }
    check(!halves.host.empty() && halves.host.find_first_of("[] \t/") == text.npos &&
              (halves.rest.empty() || halves.rest.front() == ':'),
          what, ": \"", text, "\" is not host:port");
    return halves;
  }
};

}  // namespace dhp
