# Puts page.html, its style and its scripts together and writes them as a C++ byte array.
# usage: cmake -D HTML=page.html -D STYLE=page.css -D "SCRIPTS=a.js,b.js" -D OUT=page_parts.cpp -P embed.cmake
# The page's Content-Security-Policy allows this style and this script by their digests and nothing else, so that
# nothing that stands in the data could run even if it got out of its place.
cmake_minimum_required(VERSION 3.25)

# The digest as CSP wants it, in base64: three hex digits are two digits of it.
function(digest_of text out)
  string(SHA256 hex "${text}")
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(APPEND hex "00")
  set(base64 "")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING ${hex} ${at} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING "${digits}" ${high} 1 high)
    string(SUBSTRING "${digits}" ${low} 1 low)
    string(APPEND base64 ${high}${low})
  endforeach()
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${out} "sha256-${base64}=" PARENT_SCOPE)
endfunction()

file(READ ${HTML} page)
file(READ ${STYLE} style)
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
set(script "'use strict';\n(() => {\n")
foreach(each IN LISTS SCRIPTS)
  file(READ ${each} part)
  string(APPEND script "${part}")
endforeach()
string(APPEND script "})();\n")

digest_of("${style}" style_digest)
digest_of("${script}" script_digest)
foreach(part STYLE_DIGEST SCRIPT_DIGEST STYLE SCRIPT)
  string(TOLOWER ${part} variable)
  string(FIND "${page}" "@${part}@" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${HTML}: has no @${part}@")
  endif()
  string(REPLACE "@${part}@" "${${variable}}" page "${page}")
endforeach()
foreach(place THE_VERDICT_AS_TEXT THE_DATA)
  string(REGEX MATCHALL "@${place}@" places "${page}")
  list(LENGTH places count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "${HTML}: @${place}@ is there ${count} times, it must be there once")
  endif()
endforeach()

file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "// Made from report/page by embed.cmake.
#include \"report/page/page_parts.hpp\"

namespace amaxscope::report {
namespace {
constexpr unsigned char kPage[] = {
${bytes}};
}  // namespace

std::string_view page_template() noexcept { return {reinterpret_cast<const char*>(kPage), sizeof(kPage)}; }

}  // namespace amaxscope::report
")
