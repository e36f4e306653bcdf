// Aborted: what the other ranks end with when one has failed; and how a message names the place of a call.
#pragma once

#include <dhp/comm/communicator.hpp>
#include <dhp/core/error.hpp>

#include <source_location>
#include <string>
#include <string_view>

namespace dhp {

/// The world has ended for a reason that is not this rank's: the sentence is that reason.
class Aborted : public Error {
 public:
  // Not "using Error::Error": nvcc 13 cannot inherit a constructor with this default argument.
  explicit Aborted(const std::string& sentence,
                   std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

/// "trainer.hpp:120"
[[nodiscard]] inline std::string to_text(const CallSite& where) {
  const std::string_view file(where.file_name());
  return concat(file.substr(file.rfind('/') + 1), ":", where.line());
}

}  // namespace dhp
