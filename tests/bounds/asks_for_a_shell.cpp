// What tests/bounds/imports has to find.
#include <cstdio>
#include <cstdlib>

int main(int count, char**) {
  if (count < 2) return 0;
  std::FILE* const pipe = popen("true", "r");
  return pipe == nullptr ? 1 : pclose(pipe) + std::system("true");
}
