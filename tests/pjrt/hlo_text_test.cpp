// Optimized programs as text.
#include "pjrt/hlo_text.h"

#include "test_client.h"

namespace tpjrt::pjrt::test {
namespace {

class HloText : public WithPlugin {};

TEST_F(HloText, NamesWhatTheProgramDoes) {
  const std::string text = test_client().compile(double_program(1024))->optimized_hlo();
  for (const char* part : {"HloModule", "ENTRY", "f32[1024]{0} parameter(0)", " add(", "ROOT"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

// Cut or altered bytes print less. They neither throw nor read beyond the end, which the sanitizers would detect.
TEST_F(HloText, MalformedProgramsAreHarmless) {
  std::string format;
  const std::string program = test_client().compile(double_program(8))->optimized_program(format);
  for (size_t size = 0; size < program.size(); size += 7) {
    hlo_text(std::string_view(program).substr(0, size), format);
    std::string altered = program;
    altered[size] = static_cast<char>(altered[size] ^ 0xff);
    hlo_text(altered, format);
  }
}

TEST(HloTextFormats, OtherFormats) {
  EXPECT_EQ(hlo_text("module @m {}\n", "mlir"), "module @m {}\n");
  EXPECT_EQ(hlo_text(std::string_view("\x01\x02\x00", 3), "mlir"), "(3 bytes of format \"mlir\")\n");
  EXPECT_EQ(hlo_text("", "hlo_with_config"), "");
}

}  // namespace
}  // namespace tpjrt::pjrt::test
