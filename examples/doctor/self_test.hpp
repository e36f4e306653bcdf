// The doctor's own examination: it starts itself with one fault after another, and looks whether each is found.
#pragma once

#include "options.hpp"

namespace examples::doctor {

/// program: the file to start. Prints a table; returns the exit status, 0 where every fault was found with its rank,
/// and a run without any finds nothing.
[[nodiscard]] int self_test(const DoctorOptions& options, const std::string& program);

}  // namespace examples::doctor
