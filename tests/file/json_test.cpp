// JSON, read and written.
#include "file/json.h"

#include <gtest/gtest.h>

namespace tpjrt::file {
namespace {

std::string refused(std::string_view text) {
  try {
    (void)Json::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, KeepsWhatItReads) {
  const std::string text = R"({"a":[1,-2,true,false,null],"b":{"c":"x\"\\y"},"big":9007199254740993})";
  EXPECT_EQ(Json::parse(text).text(), text);
  EXPECT_EQ(Json::parse(text).at("big").integer("big"), 9007199254740993);
  EXPECT_DOUBLE_EQ(std::get<double>(Json::parse("-1.5e3").value()), -1500);
}

TEST(Json, ReadsEscapesAsUtf8) {
  EXPECT_EQ(Json::parse(R"("\u00e4\n\ud83d\ude00")").string("it"), "\xC3\xA4\n\xF0\x9F\x98\x80");
}

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1,", "{\"a\" 1}", "tru", "1 2", "\"\\x\"", "\"\\u12\"", "\"a", "+", "--1",
                           "[1 2]", "\"\\ud800\\u0041\""}) {
    EXPECT_TRUE(refused(text).starts_with("no JSON: ")) << text;
  }
  EXPECT_EQ(refused(R"({"a":1,"a":2})"), "no JSON: a key twice: a (byte 10)");
  EXPECT_EQ(refused(std::string(100'000, '[')), "no JSON: it is nested too deeply (byte 65)");
}

TEST(Json, SaysWhatIsSomethingElse) {
  const Json json = Json::parse(R"({"a":1})");
  EXPECT_THROW((void)json.at("b"), Error);
  EXPECT_THROW((void)json.at("a").string("a"), Error);
  EXPECT_EQ(json.find("b"), nullptr);
}

}  // namespace
}  // namespace tpjrt::file
