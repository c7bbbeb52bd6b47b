// A CUDA driver with the devices that STAND_IN_DEVICES lists, one letter each: the UUID of device "a" ends
// in 61. Only what `doctor` asks; built as libcuda.so.1 and found through LD_LIBRARY_PATH.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string devices() {
  const char* letters = std::getenv("STAND_IN_DEVICES");
  return letters == nullptr ? "" : letters;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 13010;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices().size());
  return 0;
}
// Handles are not ordinals.
int cuDeviceGet(int* device, int ordinal) {
  *device = 100 + ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Stand-in 9000", static_cast<std::size_t>(size));
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  const std::size_t ordinal = static_cast<std::size_t>(device - 100);
  if (ordinal >= devices().size()) return 101;
  std::memset(uuid, 0, 16);
  uuid[0] = 0xAB;
  uuid[15] = static_cast<unsigned char>(devices()[ordinal]);
  return 0;
}

}  // extern "C"
