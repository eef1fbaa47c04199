// A hand-written program file: a counter with a weight.
//
// add(x) returns x * weight + count and increments count. read(x) returns x + weight. sized(x) has two variants of
// sizes.
#pragma once

#include <string>

#include "../file/written.h"
#include "file/tensors.h"

namespace tpjrt::runner::test {

using file::test::archive_of;
using file::test::Folder;
using file::test::Members;

inline std::string text_of(const std::string& types, const std::string& body, const std::string& result) {
  return "func.func public @main(" + types + ") -> " + result + " {\n" + body + "}\n";
}

inline std::string add_text() {
  return text_of("%x: tensor<4xf32>, %w: tensor<4xf32>, %n: tensor<f32> {tf.aliasing_output = 1 : i32}",
                 " %0 = stablehlo.multiply %x, %w : tensor<4xf32>\n"
                 " %1 = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
                 " %2 = stablehlo.add %0, %1 : tensor<4xf32>\n"
                 " %one = stablehlo.constant dense<1.0> : tensor<f32>\n"
                 " %3 = stablehlo.add %n, %one : tensor<f32>\n"
                 " return %2, %3 : tensor<4xf32>, tensor<f32>\n",
                 "(tensor<4xf32>, tensor<f32>)");
}

inline std::string sized_text(int size) {
  const std::string type = "tensor<" + std::to_string(size) + "xf32>";
  return text_of("%x: " + type, " %0 = stablehlo.add %x, %x : " + type + "\n return %0 : " + type + "\n", type);
}

inline std::string read_text() {
  return text_of("%x: tensor<4xf32>, %w: tensor<4xf32>",
                 " %0 = stablehlo.add %x, %w : tensor<4xf32>\n return %0 : tensor<4xf32>\n", "tensor<4xf32>");
}

inline std::string form(const std::string& name, const std::string& shape) {
  return R"({"name":")" + name + R"(","dtype":"float32","shape":)" + shape + R"(,"strides":[],"updated":false})";
}

inline std::string variant(const std::string& sizes, const std::string& shape, const std::string& parameters,
                           const std::string& outputs, const std::string& file) {
  return R"({"sizes":)" + sizes + R"(,"arguments":[)" + form("x", shape) + R"(],"results":[)" + form("y", shape) +
         R"(],"parameters":)" + parameters + R"(,"outputs":)" + outputs +
         R"(,"requirements":[],"composites":[],"ops":{"stablehlo.add":1},"programs":{"any":{"file":")" + file +
         R"(","options":{},"hints":[]}}})";
}

inline std::string signature(const std::string& format = "1", const std::string& weights = "null",
                             const std::string& kernels = "[]") {
  const std::string one = R"([{"argument":0}])", result = R"([{"result":0}])";
  return R"({"format":)" + format + R"(,"made_by":{"torch_pjrt":"0.1.0"},"weights":)" + weights + R"(,"kernels":)" +
         kernels +
         R"(,"state":[{"name":"weight","dtype":"float32","shape":[4],"strides":[1],"updated":false,"aliases":["tied"]},)"
         R"({"name":"count","dtype":"float32","shape":[],"strides":[],"updated":true}],"entries":[)"
         R"({"name":"add","variants":[)" +
         variant("{}", "[4]", R"([{"argument":0},{"state":"weight"},{"state":"count"}])",
                 R"([{"result":0},{"state":"count"}])", "add.mlir") +
         R"(]},{"name":"read","variants":[)" +
         variant("{}", "[4]", R"([{"argument":0},{"state":"weight"}])", result, "read.mlir") +
         R"(]},{"name":"sized","variants":[)" + variant(R"({"n":2})", "[2]", one, result, "two.mlir") + "," +
         variant(R"({"n":3})", "[3]", one, result, "three.mlir") + "]}]}";
}

// Returns the signature with a frozen weight.
inline std::string frozen_signature() {
  std::string text = signature();
  const std::string place = R"("aliases":["tied"])";
  return text.replace(text.find(place), place.size(), place + R"(,"frozen":true)");
}

inline std::string safetensors_of(const std::string& header, const std::vector<float>& values) {
  std::string text = header;
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  std::string out;
  file::test::put<uint64_t>(out, text.size());
  out += text;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return out;
}

inline std::string weights() {
  return safetensors_of(R"({"weight":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", {1, 2, 3, 4});
}

inline Members members() {
  return {{"program.json", signature()},
          {"add.mlir", add_text()},
          {"read.mlir", read_text()},
          {"two.mlir", sized_text(2)},
          {"three.mlir", sized_text(3)},
          {"weights.safetensors", weights()},
          {"state.safetensors", safetensors_of(R"({"count":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", {10})}};
}

inline Members with(Members members, const std::string& name, const std::string& content) {
  for (auto& [each, text] : members) {
    if (each == name) text = content;
  }
  return members;
}

}  // namespace tpjrt::runner::test
