// What the error of a program that did not build shows. The texts are the
// user's and the compiler's: of any length and content, so they are scanned by
// hand. (std::regex recurses by the character.)
#pragma once

#include "device.h"

#include <string>

namespace torch_opencl::runtime {

// The compiler's log, or why there is none.
std::string build_log(cl_program program, cl_device_id device);

// The numbered lines around the first one that the log names. Files and numbers
// follow #line directives, as the compiler's do.
std::string source_excerpt(const std::string& text, const std::string& log);

}  // namespace torch_opencl::runtime
