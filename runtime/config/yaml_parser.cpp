#include "runtime/config/yaml_parser.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "runtime/config/yaml_scalar.hpp"
#include "runtime/config/yaml_tree.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";
constexpr std::size_t kMaxExpandedBytes = 8 * kMaxConfigBytes;

// The tree cannot be turned into a value within the limits.
struct Stop {
  SourcePosition position;
  std::string message;
};

std::string tag_name(std::string_view tag) {
  if (tag.starts_with(kCoreTag)) return fmt::format("!!{}", tag.substr(kCoreTag.size()));
  return std::string(tag);
}

class Expander {
 public:
  Expander(const YamlTree& tree, Diagnostics& diagnostics)
      : tree_(tree), diagnostics_(diagnostics), inside_(tree.size(), false) {}

  ConfigValue value(std::size_t index, std::size_t depth);

 private:
  using Mapping = ConfigValue::Mapping;

  ConfigValue scalar(const YamlNode& node);
  ConfigValue list(const YamlNode& node, std::size_t depth);
  ConfigValue mapping(const YamlNode& node, std::size_t depth);
  struct Merged {
    Mapping members;
    std::unordered_map<std::string, std::size_t> index;  // of each key in members
  };
  void merge(const ConfigValue& source, Merged& into);
  void merge_mapping(const ConfigValue& source, Merged& into);
  bool check_collection_tag(const YamlNode& node, std::string_view allowed);
  const YamlNode& behind_alias(std::size_t index) const {
    const YamlNode& node = tree_[index];
    return node.kind == YamlNode::Kind::kAlias ? tree_[node.target] : node;
  }

  const YamlTree& tree_;
  Diagnostics& diagnostics_;
  std::vector<bool> inside_;  // nodes being expanded: meeting one again is a cycle
  std::size_t nodes_ = 0;
  std::size_t bytes_ = 0;
};

ConfigValue Expander::value(std::size_t index, std::size_t depth) {
  const YamlNode& node = tree_[index];
  if (node.kind == YamlNode::Kind::kAlias) {
    if (inside_[node.target]) throw Stop{node.position, "an alias stands inside the node that it means"};
    return value(node.target, depth);
  }
  bytes_ += node.text.size();
  if (++nodes_ > kMaxYamlNodes || bytes_ > kMaxExpandedBytes) {
    throw Stop{node.position, fmt::format("aliases expand to more than {} nodes or {} bytes", kMaxYamlNodes,
                                          kMaxExpandedBytes)};
  }
  if (node.kind == YamlNode::Kind::kNull) return {std::monostate{}, node.position};
  if (node.kind == YamlNode::Kind::kScalar) return scalar(node);
  if (depth >= kMaxYamlDepth) {
    throw Stop{node.position, fmt::format("aliases nest more than {} levels deep", kMaxYamlDepth)};
  }
  inside_[index] = true;
  ConfigValue result = node.kind == YamlNode::Kind::kList ? list(node, depth + 1) : mapping(node, depth + 1);
  inside_[index] = false;
  return result;
}

ConfigValue Expander::scalar(const YamlNode& node) {
  const auto refuse = [&](const std::string& why) {
    diagnostics_.fault(node.position, why);
    return ConfigValue(std::monostate{}, node.position);
  };
  if (node.tag == "!" || node.tag == fmt::format("{}str", kCoreTag)) return {node.text, node.position};
  ResolvedScalar resolved = resolve_plain_scalar(node.text);
  if (node.tag == "?" || node.tag.empty()) {
    if (!resolved.error.empty()) return refuse(resolved.error);
    return {std::move(resolved.data), node.position};
  }
  const std::string name = tag_name(node.tag);
  if (name != "!!bool" && name != "!!int" && name != "!!float" && name != "!!null") {
    return refuse(
        fmt::format("tag {} is not allowed here; a config holds plain values only", in_quotes(name)));
  }
  if (!resolved.error.empty()) return refuse(resolved.error);
  ConfigValue result(std::move(resolved.data), node.position);
  double number = 0;
  const bool fits = name == "!!bool"    ? result.as_bool() != nullptr
                    : name == "!!int"   ? result.as_integer() != nullptr
                    : name == "!!float" ? result.as_number(number)
                                        : result.is_null();
  if (!fits) return refuse(fmt::format("{} is not a {}", in_quotes(node.text), name));
  if (name == "!!float") return {number, node.position};
  return result;
}

bool Expander::check_collection_tag(const YamlNode& node, std::string_view allowed) {
  if (node.tag.empty() || node.tag == "?" || node.tag == "!" || tag_name(node.tag) == allowed) return true;
  diagnostics_.fault(node.position,
                     fmt::format("tag {} is not allowed here; a config holds plain values only",
                                 in_quotes(tag_name(node.tag))));
  return false;
}

ConfigValue Expander::list(const YamlNode& node, std::size_t depth) {
  const bool tag_ok = check_collection_tag(node, "!!seq");
  ConfigValue::List items;
  items.reserve(node.children.size());
  for (const std::size_t child : node.children) items.push_back(value(child, depth));
  if (!tag_ok) return {std::monostate{}, node.position};
  return {std::move(items), node.position};
}

ConfigValue Expander::mapping(const YamlNode& node, std::size_t depth) {
  const bool tag_ok = check_collection_tag(node, "!!map");
  Merged merged;
  Mapping own;
  std::unordered_map<std::string, SourcePosition> seen;
  for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
    const YamlNode& key = behind_alias(node.children[i]);
    const SourcePosition place = tree_[node.children[i]].position;
    ConfigValue content = value(node.children[i + 1], depth);
    if (key.kind != YamlNode::Kind::kScalar) {
      diagnostics_.error(place, "a key must be a word, found " +
                                    std::string(key.kind == YamlNode::Kind::kNull   ? "nothing"
                                                : key.kind == YamlNode::Kind::kList ? "a list"
                                                                                    : "a mapping"));
      continue;
    }
    const bool untagged = key.tag == "?" || key.tag.empty();
    if (!untagged && key.tag != "!" && tag_name(key.tag) != "!!str") {
      diagnostics_.error(place, fmt::format("tag {} is not allowed on a key", in_quotes(tag_name(key.tag))));
      continue;
    }
    bytes_ += key.text.size();
    const auto [first, is_new] = seen.emplace(key.text, place);
    if (!is_new) {
      diagnostics_.error(place, fmt::format("duplicate key {}; it stands at line {} already",
                                            in_quotes(key.text), first->second.line));
    } else if (key.text == "<<" && untagged) {
      merge(content, merged);
    } else {
      own.push_back({key.text, place, std::move(content)});
    }
  }
  if (!tag_ok) return {std::monostate{}, node.position};
  // Keys of the mapping itself win over merged ones, and take their place in the order, as in a Python dict.
  for (ConfigValue::Member& member : own) {
    const auto found = merged.index.find(member.key);
    if (found == merged.index.end()) {
      merged.members.push_back(std::move(member));
    } else {
      merged.members[found->second] = std::move(member);
    }
  }
  return {std::move(merged.members), node.position};
}

void Expander::merge(const ConfigValue& source, Merged& into) {
  const ConfigValue::List* sources = source.as_list();
  if (sources == nullptr) return merge_mapping(source, into);
  for (const ConfigValue& one : *sources) merge_mapping(one, into);
}

void Expander::merge_mapping(const ConfigValue& source, Merged& into) {
  const Mapping* members = source.as_mapping();
  if (members == nullptr) {
    diagnostics_.error(
        source.position(),
        fmt::format("\"<<\" merges a mapping or a list of mappings, found {}", source.described()));
    return;
  }
  for (const ConfigValue::Member& member : *members) {
    if (into.index.emplace(member.key, into.members.size()).second) into.members.push_back(member);
  }
}

}  // namespace

std::optional<ConfigValue> read_yaml(std::string_view text, Diagnostics& diagnostics) {
  const std::optional<YamlText> accepted = YamlText::accept(text, diagnostics);
  if (!accepted) return std::nullopt;
  const std::optional<YamlTree> tree = parse_yaml_tree(*accepted, diagnostics);
  if (!tree) return std::nullopt;
  if (tree->empty()) return ConfigValue();
  try {
    return Expander(*tree, diagnostics).value(0, 0);
  } catch (const Stop& stop) {
    diagnostics.error(stop.position, stop.message);
    return std::nullopt;
  }
}

ConfigValue parse_yaml(std::string_view text, Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.entries().size();
  std::optional<ConfigValue> value = read_yaml(text, diagnostics);
  return value && diagnostics.entries().size() == before ? std::move(*value) : ConfigValue();
}

}  // namespace amaxscope
