// Archives that are read, and archives that are refused.
#include "file/archive.h"

#include <gtest/gtest.h>

#include "file/crc32.h"
#include "written.h"

namespace tpjrt::file {
namespace {

using test::archive_of;
using test::opened;
using test::thrown;

TEST(Crc32, IsZips) {
  EXPECT_EQ(crc32(test::bytes_of("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32(test::bytes_of("")), 0U);
  std::string text;
  uint32_t bitwise = ~0U;
  for (int i = 0; i < 1000; ++i) {  // of each length
    text += static_cast<char>(i * 7 + i / 3);
    bitwise ^= static_cast<unsigned char>(text.back());
    for (int bit = 0; bit < 8; ++bit) bitwise = bitwise >> 1 ^ (bitwise & 1U ? 0xEDB88320U : 0U);
    ASSERT_EQ(crc32(test::bytes_of(text)), ~bitwise) << text.size();
  }
}

TEST(Archive, GivesItsMembersAligned) {
  const auto archive = opened(archive_of({{"a.txt", "hello"}, {"in/b", ""}}));
  EXPECT_EQ(archive->names(), (std::vector<std::string>{"a.txt", "in/b"}));
  EXPECT_EQ(archive->read_text("a.txt"), "hello");
  EXPECT_EQ(archive->read_text("in/b"), "");
  EXPECT_EQ(thrown([&] { (void)archive->read("c"); }),
            "'it.pjrt' has no member c. Copy it again from where it was made, or export it anew");
}

TEST(Archive, RefusesWhatIsTruncated) {
  const std::string whole = archive_of({{"a.txt", "hello"}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(thrown([&] { (void)opened(whole.substr(0, size)); }), "") << size;
  }
  EXPECT_TRUE(thrown([&] { (void)opened("PK"); }).starts_with("'it.pjrt' is no program's file, or is truncated"));
}

TEST(Archive, NoticesEveryAlteredByteOfAMember) {
  const std::string whole = archive_of({{"a.txt", "hello"}});
  for (size_t i = 0; i < 5; ++i) {
    std::string altered = whole;
    altered[64 + i] ^= 1;
    EXPECT_EQ(
        thrown([&] { (void)opened(altered)->read("a.txt"); }),
        "'it.pjrt' was altered: the checksum of a.txt is another. Copy it again from where it was made, or export it "
        "anew");
  }
}

TEST(Archive, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../a", "/etc/passwd", "a/../../b", "a\\b", "C:a", "..", "a/.."}) {
    EXPECT_NE(thrown([&] { (void)opened(archive_of({{name, "x"}})); }).find("would leave the folder"),
              std::string::npos)
        << name;
  }
  EXPECT_EQ(opened(archive_of({{"a/..b", "x"}}))->read_text("a/..b"), "x");
}

TEST(Archive, RefusesWhatIsCompressedOrTwice) {
  EXPECT_NE(thrown([] { (void)opened(archive_of({{"a", "x"}}, 8)); }).find("compressed or encrypted"),
            std::string::npos);
  EXPECT_NE(thrown([] { (void)opened(archive_of({{"a", "x"}, {"a", "y"}})); }).find("two members"), std::string::npos);
}

TEST(Archive, SaysWhatCantBeOpened) {
  EXPECT_EQ(thrown([] { (void)Archive::open("/no/such.pjrt"); }),
            "'/no/such.pjrt' can't be opened: No such file or directory");
  EXPECT_EQ(thrown([] { (void)Archive::open("/tmp"); }), "'/tmp' can't be opened: it is no plain file");
}

}  // namespace
}  // namespace tpjrt::file
