#include "tests/support/mpi_listener.hpp"

namespace amaxscope::testing {
namespace {

TEST(OutputOfRank, EachRankHasAFileOfItsOwn) {
  EXPECT_EQ(output_of_rank("xml:out/report.xml", 3), "xml:out/report.rank3.xml");
  EXPECT_EQ(output_of_rank("json:report.json", 0), "json:report.rank0.json");
  EXPECT_EQ(output_of_rank("xml:report", 1), "xml:report.rank1");
  EXPECT_EQ(output_of_rank("xml:out/", 2), "xml:out/rank2/");
  EXPECT_EQ(output_of_rank("xml", 2), "xml:test_detail.rank2.xml");
  EXPECT_EQ(output_of_rank("", 2), "");
}

}  // namespace
}  // namespace amaxscope::testing
