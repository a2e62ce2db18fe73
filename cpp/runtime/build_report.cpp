#include "build_report.h"

#include "error.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>

namespace torch_opencl::runtime {
namespace {

struct Place {
  std::string_view file;
  int64_t line = 1;
};

// Digits at the start of `text`, which then begins behind them.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > INT32_MAX) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// The first "file:line:column:" of a log.
Place first_place(std::string_view log) {
  size_t start = 0;  // of what may be a file's name
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i] == ':') {
      std::string_view rest = log.substr(i + 1);
      const auto line = take_number(rest);
      if (line.has_value() && rest.starts_with(':')) {
        rest.remove_prefix(1);
        if (take_number(rest).has_value() && rest.starts_with(':')) {
          return {log.substr(start, i - start), *line};
        }
      }
    }
    if (std::string_view(": \t\r\n\v\f").find(log[i]) !=
        std::string_view::npos) {
      start = i + 1;
    }
  }
  return {};
}

// Where `#line 7 "file"` says that the next line is.
std::optional<Place> line_directive(std::string_view line) {
  constexpr std::string_view kDirective = "#line ";
  if (!line.starts_with(kDirective)) {
    return std::nullopt;
  }
  line.remove_prefix(kDirective.size());
  const auto number = take_number(line);
  if (!number.has_value()) {
    return std::nullopt;
  }
  Place place{"", *number};
  if (line.starts_with(" \"") && line.find('"', 2) != std::string_view::npos) {
    place.file = line.substr(2, line.rfind('"') - 2);
  }
  return place;
}

}  // namespace

std::string build_log(cl_program program, cl_device_id device) {
  size_t size = 0;
  cl_int code = api().clGetProgramBuildInfo(
      program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(code == CL_SUCCESS ? size : 0, '\0');
  if (!log.empty()) {
    code = api().clGetProgramBuildInfo(
        program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  }
  if (code != CL_SUCCESS) {
    return "(none: clGetProgramBuildInfo failed with " + std::to_string(code) +
           ", " + error_name(code) + ")";
  }
  return log.c_str();  // up to its NUL
}

std::string source_excerpt(const std::string& text, const std::string& log) {
  constexpr int64_t kAround = 8;
  constexpr size_t kMostBytes = 6000;
  constexpr size_t kMostOfALine = 400;
  const Place wanted = first_place(log);
  // A name that no #line has is the driver's own, of the text as a whole: its
  // lines are counted from the text's first.
  const bool is_known =
      text.find("\"" + std::string(wanted.file) + "\"") != std::string::npos;
  std::istringstream stream(text);
  std::string result;
  std::string line;
  std::string file;
  int64_t line_of_text = 0;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    ++line_of_text;
    if (const auto directive = line_directive(line)) {
      number = directive->line - 1;
      file = directive->file;
      continue;
    }
    const int64_t place = is_known ? number : line_of_text;
    const bool is_near =
        place <= wanted.line + kAround && wanted.line <= place + kAround;
    if (is_near && (!is_known || file == wanted.file) &&
        result.size() < kMostBytes) {
      result += (place == wanted.line ? "> " : "  ") + std::to_string(number) +
                " | " + line.substr(0, kMostOfALine) +
                (line.size() > kMostOfALine ? "..." : "") + "\n";
    }
  }
  return result;
}

}  // namespace torch_opencl::runtime
