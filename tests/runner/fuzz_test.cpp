// Altered signatures with valid checksums give an error, or a signature whose indices are all valid.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "by_hand.h"
#include "runner/signature.h"

namespace tpjrt::runner {
namespace {

TEST(Fuzz, Signatures) {
  const char* given = std::getenv("TORCH_PJRT_TEST_FUZZ");
  const int rounds = given ? std::atoi(given) : 1000;
  std::mt19937 engine(7);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    std::string text = i % 2 == 0 ? test::signature() : test::frozen_signature();
    for (size_t n = 1 + engine() % 3; n > 0; --n) {
      const size_t at = engine() % text.size();
      switch (engine() % 4) {
        case 0: text[at] = "0123456789-,:{}[]\"ab"[engine() % 20]; break;
        case 1: text.erase(at, 1 + engine() % 12); break;
        case 2: text.insert(at, text.substr(engine() % text.size(), engine() % 40)); break;
        default: text[at] = static_cast<char>(engine());
      }
    }
    const auto archive = file::test::opened(file::test::archive_of(test::with(test::members(), "program.json", text)));
    try {
      const Signature signature = read_signature(*archive);
      for (const EntryForm& entry : signature.entries) {
        for (const VariantSpec& variant : entry.variants) {
          for (const Place& place : variant.parameters) {
            if (place.kind == Place::Kind::kState) (void)signature.state.at(place.index);
            if (place.kind == Place::Kind::kArgument) (void)variant.described.arguments.at(place.index);
          }
        }
      }
    } catch (const file::Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("'it.pjrt'")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 2);
}

}  // namespace
}  // namespace tpjrt::runner
