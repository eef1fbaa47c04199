// safetensors and .npy: round trips, and files that are refused.
#include <gtest/gtest.h>

#include <array>

#include "file/tensors.h"
#include "written.h"

namespace tpjrt::file {
namespace {

using test::thrown;

const std::array<float, 16> kSixteen{1, 2, 3};
const std::array<int64_t, 1> kOne{7};

Tensors two() {
  return {{"small", {DType::kInt64, {}, std::as_bytes(std::span(kOne))}},
          {"whole lines", {DType::kFloat32, {2, 8}, std::as_bytes(std::span(kSixteen))}}};
}

TEST(Safetensors, ComeBack) {
  test::Folder folder;
  const std::string path = folder.path("a.safetensors");
  write_safetensors(path, two());
  const Mapping mapping(path);
  const Tensors tensors = read_safetensors(mapping.bytes(), path);
  ASSERT_EQ(tensors.size(), 2u);
  const Stored& lines = tensors.at("whole lines");
  EXPECT_EQ(lines.shape, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(std::memcmp(lines.bytes.data(), kSixteen.data(), 64), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(lines.bytes.data()) % 64, 0u);
  EXPECT_EQ(tensors.at("small").shape, std::vector<int64_t>());
  EXPECT_EQ(test::read_whole(path).size() % 64, 8u);
}

TEST(Safetensors, AreRefusedWhenDamaged) {
  test::Folder folder;
  const std::string path = folder.path("a.safetensors");
  write_safetensors(path, two());
  const std::string whole = test::read_whole(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_TRUE(
        thrown([&] { (void)read_safetensors(test::bytes_of(cut), "a"); }).starts_with("'a' is no safetensors file"));
  }
  const auto with = [](const std::string& header) {
    std::string text;
    test::put<uint64_t>(text, header.size());
    return text + header + std::string(64, '\0');
  };
  for (const char* header :
       {R"({"x":{"dtype":"F99","shape":[],"data_offsets":[0,4]}})",
        R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
        R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"x":{"dtype":"F32","shape":[4611686018427387905,4611686018427387905],"data_offsets":[0,4]}})",
        R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[64,68]}})", R"({"x":{"dtype":"F32","shape":[1]}})", "[]"}) {
    const std::string text = with(header);
    EXPECT_NE(thrown([&] { (void)read_safetensors(test::bytes_of(text), "a"); }), "") << header;
  }
}

TEST(Safetensors, SayWhereTheyCantBeWritten) {
  EXPECT_EQ(thrown([] { write_safetensors("/no/such/a.safetensors", two()); }),
            "'/no/such/a.safetensors' can't be written: No such file or directory. Give a path in a folder that is "
            "there, may "
            "be written to and has room");
}

TEST(Npy, ComeBack) {
  test::Folder folder;
  for (const auto& [name, tensor] : two()) {
    const std::string path = folder.path(name + ".npy");
    write_npy(path, tensor);
    const Mapping mapping(path);
    const Stored read = read_npy(mapping.bytes(), path);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.shape, tensor.shape);
    EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
  }
}

TEST(Npy, AreRefusedWhenDamaged) {
  test::Folder folder;
  const std::string path = folder.path("a.npy");
  write_npy(path, two().at("whole lines"));
  const std::string whole = test::read_whole(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_NE(thrown([&] { (void)read_npy(test::bytes_of(cut), "a"); }), "") << size;
  }
  std::string fortran = whole;
  fortran.replace(fortran.find("False"), 5, "True ");
  EXPECT_NE(thrown([&] { (void)read_npy(test::bytes_of(fortran), "a"); }).find("Fortran's order"), std::string::npos);
}

}  // namespace
}  // namespace tpjrt::file
