// The version of dhp. The build reads it from here.
#pragma once

namespace dhp {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 2;
inline constexpr int version_patch = 0;

}  // namespace dhp
