// core: errors, element types, shapes, random numbers, text and trace.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/error.hpp>
#include <dhp/core/rng.hpp>
#include <dhp/core/shape.hpp>
#include <dhp/core/text.hpp>
#include <dhp/core/trace.hpp>
#include <dhp/core/types.hpp>
