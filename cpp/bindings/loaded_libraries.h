// The tables of functions that the process's shared libraries import.
#pragma once

namespace torch_opencl {

// Makes the libraries that are loaded call `function` where they import
// `symbol` (a mangled name). This library's own calls stay. Returns how many
// entries there are, those that were replaced before included. With `library`
// (a part of its path), only that one calls it.
int replace_imported_function(const char* symbol,
                              void* function,
                              const char* library = "/");

}  // namespace torch_opencl
