#include "collectives/nccl/nccl_api.hpp"

namespace amaxscope {

// ncclCommSplit and the configuration's splitShare.
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1), "NCCL 2.18 or newer is needed");

namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 1);

std::string message(ncclResult_t result, std::string_view operation) {
  std::string text = fmt::format("{}: {}", operation, ncclGetErrorString(result));
  const char* const detail = ncclGetLastError(nullptr);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return text;
}

}  // namespace

NcclError::NcclError(ncclResult_t result, std::string_view operation, std::source_location site)
    : Error(ErrorCode::kInternal, message(result, operation), site), result_(result) {}

void check_nccl(ncclResult_t result, std::string_view operation, std::source_location site) {
  if (!is_accepted(result)) [[unlikely]] {
    throw NcclError(result, operation, site);
  }
}

std::string nccl_version_text(int code) {
  // Up to 2.8 the code is 2804, from 2.9 on 20900.
  const int scale = code >= 10000 ? 100 : 10;
  return fmt::format("{}.{}.{}", code / (scale * 100), code / 100 % scale, code % 100);
}

std::string nccl_version_problem() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) return message(result, "ncclGetVersion");
  if (version >= kOldest) return {};
  return fmt::format("NCCL {} is loaded; {} or newer is needed", nccl_version_text(version),
                     nccl_version_text(kOldest));
}

ncclConfig_t nccl_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // a group never waits for the one that it was split from
  return config;
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kU32:
      return ncclUint32;
    case DType::kI32:
      return ncclInt32;
    case DType::kU64:
      return ncclUint64;
    case DType::kI64:
      return ncclInt64;
    default:
      break;
  }
  throw Error(ErrorCode::kTensor, fmt::format("NCCL does not reduce {} tensors", to_string(dtype)));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
  }
  throw Error(ErrorCode::kInternal, "not a reduction");
}

}  // namespace amaxscope
