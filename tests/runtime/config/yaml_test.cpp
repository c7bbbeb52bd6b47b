// YAML as PyYAML's safe loader reads it: what parse_yaml gives for it, and where.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "runtime/config/value.hpp"

namespace amaxscope {
namespace {

/// Values as Python would show them, for comparing whole structures.
std::string show(const ConfigValue& value) {
  if (const auto* list = value.as_list()) {
    std::string text = "[";
    for (const ConfigValue& entry : *list) text += (text.size() > 1 ? ", " : "") + show(entry);
    return text + "]";
  }
  if (const auto* mapping = value.as_mapping()) {
    std::string text = "{";
    for (const auto& member : *mapping)
      text += (text.size() > 1 ? ", " : "") + member.key + ": " + show(member.value);
    return text + "}";
  }
  return value.summary();
}

std::string parsed(std::string_view text) {
  Diagnostics diagnostics("y");
  const ConfigValue value = parse_yaml(text, diagnostics);
  EXPECT_FALSE(diagnostics.has_errors()) << diagnostics.format(diagnostics.entries().front());
  return show(value);
}

std::string refused(std::string_view text) {
  Diagnostics diagnostics("y");
  const ConfigValue value = parse_yaml(text, diagnostics);
  EXPECT_TRUE(value.is_null());
  std::string all;
  for (const auto& entry : diagnostics.entries())
    all += (all.empty() ? "" : "\n") + diagnostics.format(entry);
  return all;
}

TEST(YamlScalar, BooleansOfYaml11) {
  EXPECT_EQ(parsed("[yes, Yes, YES, true, True, TRUE, on, On, ON]"),
            "[True, True, True, True, True, True, True, True, True]");
  EXPECT_EQ(parsed("[no, No, NO, false, False, FALSE, off, Off, OFF]"),
            "[False, False, False, False, False, False, False, False, False]");
  EXPECT_EQ(parsed("[tRUE, yEs, y, n, oN]"), R"(["tRUE", "yEs", "y", "n", "oN"])");
}

TEST(YamlScalar, QuotedIsAlwaysText) {
  EXPECT_EQ(parsed(R"(["True", 'no', "1", '~', ""])"), R"(["True", "no", "1", "~", ""])");
}

TEST(YamlScalar, Null) {
  EXPECT_EQ(parsed("[~, null, Null, NULL, nULL]"), R"([null, null, null, null, "nULL"])");
}

TEST(YamlScalar, Integers) {
  EXPECT_EQ(parsed("[0, 7, -7, +7, 1_000, 0x1F, -0x10, 0b101, 017, 0o17, 0_7]"),
            "[0, 7, -7, 7, 1000, 31, -16, 5, 15, 15, 7]");
  EXPECT_EQ(parsed("[08, 0x, 0b2, 1-3, -, +, 1a]"), R"(["08", "0x", "0b2", "1-3", "-", "+", "1a"])");
  EXPECT_EQ(parsed("[9223372036854775807, -9223372036854775807]"),
            "[9223372036854775807, -9223372036854775807]");
}

TEST(YamlScalar, Numbers) {
  EXPECT_EQ(parsed("[1.5, -0.25, 1., .5, 1.0e+3, 6.5E-1, 1_0.5]"), "[1.5, -0.25, 1, 0.5, 1000, 0.65, 10.5]");
  EXPECT_EQ(parsed("[1e-3, 1e3, 2E+2]"), "[0.001, 1000, 200]");  // strings for PyYAML, numbers here
  EXPECT_EQ(parsed("[.inf, -.Inf, +.INF, .nan, .NaN]"), "[.inf, -.inf, .inf, .nan, .nan]");
  EXPECT_EQ(parsed("[1.2.3, e3, 1e, ., inf, nan, 1e3x]"),
            R"(["1.2.3", "e3", "1e", ".", "inf", "nan", "1e3x"])");
}

TEST(YamlScalar, WholeNumbersWithAPointAreNotIntegers) {
  Diagnostics diagnostics("y");
  const ConfigValue value = parse_yaml("10.0", diagnostics);
  EXPECT_EQ(value.as_integer(), nullptr);
  EXPECT_EQ(value.kind_name(), "a number");
}

TEST(YamlScalar, WhatHasNoValueIsRefused) {
  EXPECT_EQ(refused("a: 1:30"), "y:1:4: \"1:30\" is a base-60 number in YAML; quote it if text is meant");
  EXPECT_EQ(refused("a: 1:30:59.5"),
            "y:1:4: \"1:30:59.5\" is a base-60 number in YAML; quote it if text is meant");
  EXPECT_EQ(refused("a: 9223372036854775808"), "y:1:4: integer \"9223372036854775808\" does not fit 64 bits");
  EXPECT_EQ(refused("a: 1e999"), "y:1:4: number \"1e999\" does not fit a double");
  EXPECT_EQ(parsed("[0:30, 1:75, a:b, 12:345]"), R"(["0:30", "1:75", "a:b", "12:345"])");
}

TEST(YamlScalar, Tags) {
  EXPECT_EQ(parsed("[!!str 1, !!int 0x10, !!float 1, !!bool yes, !!null ~, ! 5]"),
            R"(["1", 16, 1, True, null, "5"])");
  EXPECT_EQ(parsed("!!map {a: !!seq [1]}"), "{a: [1]}");
  EXPECT_EQ(refused("a: !!int x"), "y:1:4: \"x\" is not a !!int");
  EXPECT_EQ(refused("a: !!python/object:os.system ls"),
            "y:1:4: tag \"!!python/object:os.system\" is not allowed here; a config holds plain values only");
  EXPECT_EQ(
      refused("a: !!python/object/apply:os.system [ls]"),
      "y:1:4: tag \"!!python/object/apply:os.system\" is not allowed here; a config holds plain values only");
  EXPECT_EQ(refused("a: !mine {b: 1}"),
            "y:1:4: tag \"!mine\" is not allowed here; a config holds plain values only");
  EXPECT_EQ(refused("!!binary a: 1"), "y:1:1: tag \"!!binary\" is not allowed on a key");
}

TEST(YamlStructure, EmptyTextIsNull) {
  EXPECT_EQ(parsed(""), "null");
  EXPECT_EQ(parsed("# only a comment\n"), "null");
  EXPECT_EQ(parsed("---\n...\n"), "null");
}

TEST(YamlStructure, BlockAndFlow) {
  EXPECT_EQ(parsed("a:\n  - 1\n  - {b: [c, 'd']}\ne:\nf : g\n"),
            R"({a: [1, {b: ["c", "d"]}], e: null, f: "g"})");
  EXPECT_EQ(parsed("a: |\n  x"), R"({a: "x"})");
  EXPECT_EQ(parsed("a: |\n  x\n"), R"({a: "x\n"})");
  EXPECT_EQ(parsed("a: |+\n  x\n\n"), R"({a: "x\n\n"})");
  EXPECT_EQ(parsed("a: |\n  line\n  next\nb: >-\n  one\n  two\n"), R"({a: "line\nnext\n", b: "one two"})");
}

TEST(YamlStructure, LineEndsOfOtherSystems) {
  EXPECT_EQ(parsed("a: 1\r\nb: 2\r\n"), "{a: 1, b: 2}");
  EXPECT_EQ(parsed("a: 1\rb: 2"), "{a: 1, b: 2}");
  EXPECT_EQ(parsed("\xEF\xBB\xBF"
                   "a: 1"),
            "{a: 1}");
}

TEST(YamlStructure, AnchorsAndMergeKeys) {
  EXPECT_EQ(parsed("a: &x [1, 2]\nb: *x\n"), "{a: [1, 2], b: [1, 2]}");
  // Own keys win over merged ones, the first of several merged mappings over the later; order as a Python
  // dict.
  EXPECT_EQ(parsed("d: &d {p: 1, q: 2}\ne: {r: 0, <<: *d, q: 3}\n"),
            "{d: {p: 1, q: 2}, e: {p: 1, q: 3, r: 0}}");
  EXPECT_EQ(parsed("{x: &x {p: 1}, y: &y {p: 2, q: 2}, z: {<<: [*x, *y]}}"),
            "{x: {p: 1}, y: {p: 2, q: 2}, z: {p: 1, q: 2}}");
  EXPECT_EQ(parsed("{x: {'<<': 5}}"), "{x: {<<: 5}}");  // quoted: a key like any other
  EXPECT_EQ(parsed("{k: &k name, *k : 1}"), "{k: \"name\", name: 1}");
}

TEST(YamlStructure, BadMergesAndAliases) {
  EXPECT_EQ(refused("a: {<<: 5}"),
            "y:1:9: \"<<\" merges a mapping or a list of mappings, found an integer 5");
  EXPECT_EQ(refused("a: {<<: [{b: 1}, c]}"),
            "y:1:18: \"<<\" merges a mapping or a list of mappings, found a string \"c\"");
  EXPECT_THAT(refused("a: *nowhere"), testing::StartsWith("y:1:4: not valid YAML: "));
  EXPECT_EQ(refused("a: &a [1, *a]"), "y:1:11: an alias stands inside the node that it means");
}

TEST(YamlStructure, DuplicateKeysAreErrorsWhereverTheyStand) {
  EXPECT_EQ(refused("a: 1\nb: {c: 1, d: 2, c: 3}\na: 2\n"),
            "y:2:17: duplicate key \"c\"; it stands at line 2 already\n"
            "y:3:1: duplicate key \"a\"; it stands at line 1 already");
  EXPECT_EQ(refused("a: &x {b: 1, b: 2}\nc: *x\n"),
            "y:1:14: duplicate key \"b\"; it stands at line 1 already");
  EXPECT_EQ(refused("x: &x {p: 1}\ny: {<<: *x, <<: *x}"),
            "y:2:13: duplicate key \"<<\"; it stands at line 2 already");
}

TEST(YamlStructure, KeysAreWords) {
  EXPECT_EQ(parsed("{1: a, on: b, 'x y': c}"), R"({1: "a", on: "b", x y: "c"})");
  EXPECT_EQ(refused("{? [a] : 1}"), "y:1:4: a key must be a word, found a list");
  EXPECT_THAT(refused("~: 1"), testing::EndsWith("a key must be a word, found nothing"));
}

TEST(YamlStructure, OneDocument) {
  EXPECT_EQ(parsed("---\na: 1\n..."), "{a: 1}");
  EXPECT_EQ(parsed("%YAML 1.1\n---\na: 1\n...\n"), "{a: 1}");
  EXPECT_THAT(refused("a: 1\n---\nb: 2\n"),
              testing::EndsWith("a second YAML document begins; a config is one document"));
}

TEST(YamlStructure, SyntaxErrorsHaveAPlace) {
  EXPECT_THAT(refused("a: [1, 2\nb: 3\n"), testing::MatchesRegex("y:[23]:[0-9]+: not valid YAML: .*"));
  // A quote that is never closed, with every end of the text.
  for (const char* end : {"", "\n", "\n\n", "\n  ", "\n# c", "\nb: 1\n"}) {
    EXPECT_THAT(refused(std::string("a: 'open") + end), testing::HasSubstr(": not valid YAML: illegal "))
        << end;
    EXPECT_THAT(refused(std::string("a: \"open") + end), testing::HasSubstr(": not valid YAML: illegal "))
        << end;
  }
  EXPECT_EQ(refused("%YAML 1.1\n"), "y: not valid YAML: a directive (%) without a document (---)");
  EXPECT_THAT(refused("a:\n\t- 1\n"), testing::StartsWith("y:2:"));
  // The shape of a documented example whose keys stand at the level of the dash.
  EXPECT_THAT(refused("t:\n- tensor: a\nstats: [m]\nfreq: 1\n- tensor: b\n"),
              testing::StartsWith("y:5:1: not valid YAML: "));
}

TEST(YamlPosition, CountsLinesAndCharactersFromOne) {
  Diagnostics diagnostics("y");
  const ConfigValue root =
      parse_yaml("\xC3\xA4\xC3\xB6: {k: v}\nlist:\n  - 1\n  - x: 2\nnone:\n", diagnostics);
  const auto& members = *root.as_mapping();
  EXPECT_EQ(members[0].position, (SourcePosition{1, 1}));
  EXPECT_EQ(members[0].value.position(), (SourcePosition{1, 5}));  // the two letters are four bytes
  EXPECT_EQ(members[0].value.find("k")->position(), (SourcePosition{1, 9}));
  EXPECT_EQ((*members[1].value.as_list())[1].position(), (SourcePosition{4, 5}));
  EXPECT_EQ(members[2].value.position(), (SourcePosition{5, 1}));  // an absent value: its key
}

TEST(ConfigValue, FindAndKinds) {
  Diagnostics diagnostics("y");
  const ConfigValue root = parse_yaml("{a: 1, b: 2.5, c: text, d: [], e: {}, f: on, g: ~}", diagnostics);
  EXPECT_EQ(root.find("z"), nullptr);
  EXPECT_EQ(root.find("a")->find("a"), nullptr);
  std::vector<std::string> kinds;
  for (const auto& member : *root.as_mapping()) kinds.emplace_back(member.value.kind_name());
  EXPECT_THAT(kinds, testing::ElementsAre("an integer", "a number", "a string", "a list", "a mapping",
                                          "a bool", "null"));
  double number = 0;
  EXPECT_TRUE(root.find("a")->as_number(number));
  EXPECT_EQ(number, 1.0);
  EXPECT_FALSE(root.find("c")->as_number(number));
  EXPECT_EQ(root.find("a")->described(), "an integer 1");
  EXPECT_EQ(root.find("f")->described(), "a bool True");
  EXPECT_EQ(root.find("d")->described(), "a list");
  EXPECT_EQ(root.find("g")->described(), "nothing");
  EXPECT_EQ(root.find("d")->summary(), "[...]");
  EXPECT_EQ(root.find("e")->summary(), "{...}");
}

}  // namespace
}  // namespace amaxscope
