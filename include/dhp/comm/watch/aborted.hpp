// Aborted: what the other ranks end with when one has failed.
#pragma once

#include <dhp/core/error.hpp>

#include <source_location>
#include <string>

namespace dhp {

/// The world has ended for a reason that is not this rank's: the sentence is that reason.
class Aborted : public Error {
 public:
  // Not "using Error::Error": nvcc 13 cannot inherit a constructor with this default argument.
  explicit Aborted(const std::string& sentence,
                   std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

}  // namespace dhp
