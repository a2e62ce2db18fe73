// What the two files of the recorder share: its objects and answers to queries.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

struct _cl_platform_id {};
struct _cl_device_id {};
struct _cl_context {};
struct _cl_command_queue {
  cl_context context;
  bool profiles;
};
struct _cl_event {};
struct _cl_mem {
  int64_t number;
  size_t bytes;
  int references;
  void* host;
};
struct _cl_program {
  int64_t number;
  std::string text;
  std::string options;
};
struct _cl_kernel {
  cl_program program;
  std::string name;
  std::map<cl_uint, std::string> arguments;
};

// There is one of each.
inline _cl_platform_id platform;
inline _cl_device_id device;
inline _cl_context context;
inline _cl_event completed;

// What every query does with its answer.
inline cl_int give(
    const void* value, size_t bytes, size_t space, void* to, size_t* needed) {
  if (needed != nullptr) {
    *needed = bytes;
  }
  if (to == nullptr) {
    return CL_SUCCESS;
  }
  if (space < bytes) {
    return CL_INVALID_VALUE;
  }
  std::memcpy(to, value, bytes);
  return CL_SUCCESS;
}

template <class T>
inline cl_int give_value(T value, size_t space, void* to, size_t* needed) {
  return give(&value, sizeof(T), space, to, needed);
}

inline cl_int give_text(const std::string& text,
                        size_t space,
                        void* to,
                        size_t* needed) {
  return give(text.c_str(), text.size() + 1, space, to, needed);
}

inline void set(cl_int* code, cl_int value = CL_SUCCESS) {
  if (code != nullptr) {
    *code = value;
  }
}

inline void set_event(cl_event* event) {
  if (event != nullptr) {
    *event = &completed;
  }
}

inline size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
