#include "tests/collectives/backend.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

std::vector<Backend> backends() {
  return {{.name = "mpi", .ranks = make_test_world()->size(), .run = [](const RankBody& body) {
             const auto world = make_test_world();
             body(*world);
           }}};
}

}  // namespace amaxscope::testing
