#include "kernel_text.h"

#include "kernel_sources.h"

#include <ATen/Dispatch_v2.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace torch_opencl::ops {

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

namespace {

// The dtype of a complex one's parts; others stay themselves.
DType real_of(DType dtype) {
  return dtype == DType::kComplex64    ? DType::kFloat32
         : dtype == DType::kComplex128 ? DType::kFloat64
                                       : dtype;
}

}  // namespace

bool has_lanes(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat64;
}

std::string preamble(DType numbers, bool math, bool lanes) {
  const DType compute = real_of(numbers);
  const bool is_signed = is_floating(compute) || compute == DType::kInt8 ||
                         compute == DType::kInt16 || compute == DType::kInt32 ||
                         compute == DType::kInt64;
  std::string text = "#define DTYPE ";
  text += runtime::dtype_name(compute);
  const auto define = [&text](const char* name, bool value) {
    text += std::string("\n#define ") + name + (value ? " 1" : " 0");
  };
  define("COMPUTE_IS_FLOATING", is_floating(compute));
  define("COMPUTE_IS_DOUBLE", compute == DType::kFloat64);
  define("COMPUTE_IS_INTEGRAL",
         !is_floating(compute) && compute != DType::kBool);
  define("COMPUTE_IS_SIGNED", is_signed);
  define("COMPUTE_IS_BOOL", compute == DType::kBool);
  define("COMPUTE_IS_COMPLEX", is_complex(numbers));
  text += "\n";
  text += sources::types.text;
  if (lanes) {
    text += "#define LANES " + std::to_string(kValueLanes) + "\n";
    text += sources::lanes.text;
  }
  text += std::string("typedef ") + (lanes ? "lanes_t" : "compute_t") +
          " value_t;\n";
  if (math) {
    text += sources::math.text;
  }
  if (is_complex(numbers)) {
    text += sources::complex.text;
    if (math) {
      text += sources::complex_math.text;
    }
  }
  return text;
}

std::string load_text(DType dtype,
                      const std::string& pointer,
                      const std::string& index,
                      const std::string& type) {
  return "(" + type + ")load_" + runtime::dtype_name(dtype) + "(" + pointer +
         ", " + index + ")";
}

std::string load_complex_text(DType dtype,
                              DType compute,
                              const std::string& pointer,
                              const std::string& index) {
  const std::string value = std::string("load_") + runtime::dtype_name(dtype) +
                            "(" + pointer + ", " + index + ")";
  return dtype == compute    ? value
         : is_complex(dtype) ? "complex_from(" + value + ")"
                             : "complex_of((real_t)" + value + ", 0)";
}

std::string store_text(DType dtype,
                       DType compute,
                       const std::string& pointer,
                       const std::string& index,
                       const std::string& value) {
  std::string converted = "(" + value + ")";
  if (is_complex(compute) && !is_complex(dtype)) {
    return dtype == DType::kBool
               ? "store_bool(" + pointer + ", " + index + ", c_true(" + value +
                     "))"
               : store_text(
                     dtype, real_of(compute), pointer, index, converted + ".x");
  }
  if (is_complex(dtype) && dtype != compute) {
    const char* type = dtype == DType::kComplex64 ? "float2" : "double2";
    converted = is_complex(compute)
                    ? std::string("convert_") + type + converted
                    : std::string("(") + type + ")(" + converted + ", 0)";
  }
  if (dtype == DType::kBool) {
    converted += " != 0";
  } else if (is_floating(compute) && !is_floating(dtype) &&
             !is_complex(dtype)) {
    // Through int64, as c10::convert does: -1.0 becomes 255 in uint8.
    converted = (dtype == DType::kUInt64
                     ? std::string("uint64_of_") + runtime::dtype_name(compute)
                     : "(long)") +
                converted;
  }
  return std::string("store_") + runtime::dtype_name(dtype) + "(" + pointer +
         ", " + index + ", " + converted + ")";
}

std::string load_lanes_text(DType dtype,
                            const std::string& pointer,
                            const std::string& index,
                            const std::string& count) {
  return std::string("load_some_") + runtime::dtype_name(dtype) + "(" +
         pointer + " + (" + index + "), " + count + ")";
}

std::string store_lanes_text(DType dtype,
                             const std::string& pointer,
                             const std::string& index,
                             const std::string& count,
                             const std::string& value) {
  return std::string("store_some_") + runtime::dtype_name(dtype) + "(" +
         pointer + " + (" + index + "), " + value + ", " + count + ")";
}

ScalarArgument scalar_argument(const at::Scalar& value,
                               at::ScalarType compute) {
  ScalarArgument argument{};
  argument.size = c10::elementSize(compute);
  if (at::isComplexType(compute)) {
    const c10::complex<double> number = value.toComplexDouble();
    const c10::complex<float> narrow(number);
    std::memcpy(argument.bytes.data(),
                compute == at::kComplexFloat
                    ? static_cast<const void*>(&narrow)
                    : static_cast<const void*>(&number),
                argument.size);
    return argument;
  }
  AT_DISPATCH_V2(compute,
                 "scalar_argument",
                 AT_WRAP([&] {
                   scalar_t converted{};
                   if (value.isFloatingPoint()) {
                     converted = static_cast<scalar_t>(value.toDouble());
                   } else if (value.isBoolean()) {
                     converted = static_cast<scalar_t>(value.toBool());
                   } else if (value.isUnsigned()) {
                     converted = static_cast<scalar_t>(value.toUInt64());
                   } else {
                     converted = static_cast<scalar_t>(value.toLong());
                   }
                   std::memcpy(
                       argument.bytes.data(), &converted, sizeof(converted));
                 }),
                 at::kBool,
                 AT_EXPAND(AT_FLOATING_TYPES),
                 AT_EXPAND(AT_INTEGRAL_TYPES_V2));
  return argument;
}

at::Scalar checked_scalar(const at::Scalar& value, at::ScalarType type) {
  at::Scalar converted;
  AT_DISPATCH_V2(type,
                 "checked_scalar",
                 AT_WRAP([&] { converted = value.to<scalar_t>(); }),
                 AT_EXPAND(NUMBER_TYPES));
  return converted;
}

at::Scalar cpu_scalar_value(const at::TensorIteratorBase& iter, int operand) {
  at::Scalar value;
  AT_DISPATCH_V2(iter.dtype(operand),
                 "cpu_scalar_value",
                 AT_WRAP([&] {
                   value =
                       *static_cast<const scalar_t*>(iter.data_ptr(operand));
                 }),
                 AT_EXPAND(NUMBER_TYPES));
  return value;
}

std::string offsets_text(const std::vector<Walk>& walks,
                         const std::string& sizes,
                         int first,
                         int dimensions) {
  std::string text;
  for (const Walk& walk : walks) {
    text += "index_t " + walk.offset + " = 0;\n";
  }
  for (int d = first; d < dimensions; ++d) {
    const std::string size = "(count_t)" + sizes + component(d);
    text += "{\n";
    if (d + 1 == dimensions) {
      text += "const count_t at_dimension = linear;\n";
    } else {
      text += "const count_t next = linear / " + size +
              ";\nconst count_t at_dimension = linear - next * " + size +
              ";\nlinear = next;\n";
    }
    for (const Walk& walk : walks) {
      text += walk.offset + " += (index_t)at_dimension * " + walk.strides +
              component(d) + ";\n";
    }
    text += "}\n";
  }
  return text;
}

std::string literal_options(c10::ArrayRef<DType> dtypes) {
  const bool has_double =
      std::find(dtypes.begin(), dtypes.end(), DType::kFloat64) != dtypes.end();
  return has_double ? "" : "-cl-single-precision-constant";
}

void check_dimensions(const char* op, int64_t dimensions) {
  TORCH_CHECK(dimensions <= kMaxDimensions,
              op,
              ": opencl supports up to ",
              kMaxDimensions,
              " dimensions that do not collapse, got ",
              dimensions);
}

std::string component(int dimension) {
  return std::string(".s") + "0123456789abcdef"[dimension];
}

std::vector<std::string> split_names(const char* names) {
  std::istringstream stream(names);
  std::vector<std::string> result;
  for (std::string name; stream >> name;) {
    result.push_back(name);
  }
  return result;
}

}  // namespace torch_opencl::ops
