// Altered files: an error or what was there, never a crash. TORCH_PJRT_TEST_FUZZ says how many; by default as many as a
// second takes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "file/archive.h"
#include "file/json.h"
#include "file/tensors.h"
#include "written.h"

namespace tpjrt::file {
namespace {

int rounds() {
  const char* given = std::getenv("TORCH_PJRT_TEST_FUZZ");
  return given ? std::atoi(given) : 3000;
}

class Mutations {
 public:
  // A few bytes flipped, set, taken out or doubled; a number of 4 or 8 bytes made large.
  std::string of(std::string text) {
    const int count = 1 + static_cast<int>(engine_() % 4);
    for (int i = 0; i < count && !text.empty(); ++i) {
      const size_t at = engine_() % text.size();
      switch (engine_() % 6) {
        case 0: text[at] = static_cast<char>(text[at] ^ 1 << engine_() % 8); break;
        case 1: text[at] = static_cast<char>(engine_()); break;
        case 2: text.erase(at, 1 + engine_() % 16); break;
        case 3: text.insert(at, text.substr(at, 1 + engine_() % 64)); break;
        case 4: text.resize(at); break;
        default:
          for (size_t b = at; b < std::min(at + (engine_() % 2 ? 4 : 8), text.size()); ++b) text[b] = '\xFF';
      }
    }
    return text;
  }

 private:
  std::mt19937 engine_{20260101};
};

// Looks at every byte of what was read.
size_t sum(Bytes bytes) {
  size_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<size_t>(byte);
  return sum;
}

template <class Read>
void expect_no_crash(const std::string& whole, Read&& read) {
  Mutations mutations;
  int refused = 0;
  for (int i = 0; i < rounds(); ++i) {
    const std::string text = mutations.of(whole);
    try {
      read(text);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds() / 20);
}

TEST(Fuzz, Archives) {
  const std::string whole =
      test::archive_of({{"program.json", "{}"}, {"weights.safetensors", std::string(200, 'w')}, {"b", ""}});
  expect_no_crash(whole, [](const std::string& text) {
    const auto archive = test::opened(text);
    for (const std::string& name : archive->names()) (void)sum(archive->read(name));
  });
}

TEST(Fuzz, Safetensors) {
  test::Folder folder;
  const std::array<float, 20> values{};
  const std::string path = folder.path("a.safetensors");
  write_safetensors(path, {{"a", {DType::kFloat32, {2, 8}, std::as_bytes(std::span(values).first(16))}},
                           {"b", {DType::kFloat32, {4}, std::as_bytes(std::span(values).last(4))}}});
  expect_no_crash(test::read_whole(path), [](const std::string& text) {
    for (const auto& [name, tensor] : read_safetensors(test::bytes_of(text), "a")) (void)sum(tensor.bytes);
  });
}

TEST(Fuzz, Npy) {
  test::Folder folder;
  const std::array<float, 6> values{};
  const std::string path = folder.path("a.npy");
  write_npy(path, {DType::kFloat32, {2, 3}, std::as_bytes(std::span(values))});
  expect_no_crash(test::read_whole(path),
                  [](const std::string& text) { (void)sum(read_npy(test::bytes_of(text), "a").bytes); });
}

TEST(Fuzz, Json) {
  expect_no_crash(
      R"({"format":1,"state":[{"name":"w\u00e4","shape":[1,2],"x":[true,null,-1.5e3]}],"s":"\ud83d\ude00"})",
      [](const std::string& text) { (void)Json::parse(text).text(); });
}

}  // namespace
}  // namespace tpjrt::file
