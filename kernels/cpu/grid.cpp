#include "kernels/codec/grid.hpp"

#include "core/error.hpp"

namespace amaxscope {

void refuse_code_format(DType format) {
  throw Error(
      ErrorCode::kTensor,
      fmt::format("{} is no format of codes; e4m3 (maximum 448), e5m2 and e2m1 are", to_string(format)));
}

}  // namespace amaxscope
