// A library for LD_PRELOAD: makes a program one that took the user's locale over, in C and in C++, as
// programs with a window do that embed this one. Ends the program when that locale does not write its numbers
// with a comma.
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <sstream>

namespace {

/// Built before main(), after the libraries that the program itself needs.
const struct Locale {
  Locale() {
    std::setlocale(LC_ALL, "");
    try {
      std::locale::global(std::locale(""));
    } catch (const std::exception&) {
      std::fputs("german_program: no such locale in C++\n", stderr);
      std::_Exit(99);
    }
    std::ostringstream number;
    number << 1234.5;
    char text[16];
    std::snprintf(text, sizeof(text), "%.1f", 0.5);
    if (std::strcmp(text, "0,5") == 0 && number.str() == "1.234,5") return;
    std::fprintf(stderr, "german_program: numbers look like %s and %s\n", text, number.str().c_str());
    std::_Exit(99);
  }
} locale;

}  // namespace
