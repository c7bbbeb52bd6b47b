#include "runtime/config/yaml_tree.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>
#include <stdexcept>

namespace amaxscope {

namespace {

// Thrown out of yaml-cpp's own recursion, so that a limit holds before the stack is used up.
struct Stop {
  SourcePosition position;
  std::string message;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlText& text) : text_(text) {}

  [[nodiscard]] YamlTree take() { return std::move(tree_); }
  [[nodiscard]] SourcePosition place(const YAML::Mark& mark) const {
    return text_.position(mark.line, mark.column);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) throw Stop{place(mark), "a second YAML document begins; a config is one document"};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(YamlNode::Kind::kNull, mark, "?", anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    tree_[add(YamlNode::Kind::kAlias, mark, "?", 0)].target = anchors_.at(anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    tree_[add(YamlNode::Kind::kScalar, mark, tag, anchor)].text = value;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMapping, mark, tag, anchor);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  std::size_t add(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor) {
    const std::size_t index = tree_.size();
    if (index >= kMaxYamlNodes) {
      throw Stop{place(mark), fmt::format("the config has more than {} YAML nodes", kMaxYamlNodes)};
    }
    YamlNode node;
    node.kind = kind;
    node.position = place(mark);
    node.tag = tag;
    if (!open_.empty()) {
      YamlNode& parent = tree_[open_.back()];
      // yaml-cpp places an absent value wherever the scanner stands; the key is where a reader looks.
      const bool is_value = parent.kind == YamlNode::Kind::kMapping && parent.children.size() % 2 == 1;
      if (kind == YamlNode::Kind::kNull && is_value) node.position = tree_[parent.children.back()].position;
      parent.children.push_back(index);
    }
    tree_.push_back(std::move(node));
    if (anchor != 0) anchors_[anchor] = index;
    return index;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const std::size_t index = add(kind, mark, tag, anchor);
    if (open_.size() >= kMaxYamlDepth) {
      throw Stop{place(mark), fmt::format("the config is nested more than {} levels deep", kMaxYamlDepth)};
    }
    open_.push_back(index);
  }

  const YamlText& text_;
  YamlTree tree_;
  std::vector<std::size_t> open_;
  std::map<YAML::anchor_t, std::size_t> anchors_;
  int documents_ = 0;
};

// At an empty last line, yaml-cpp 0.7 takes the end of the text for a missing closing quote; the end of the
// document it does not.
std::string closing(const std::string& text) {
  const std::size_t last = text.find_last_not_of(" \t");
  if (last == std::string::npos || text[last] != '\n') return "";
  return text.ends_with('\n') ? "...\n" : "\n...\n";
}

// yaml-cpp reads it as an empty document.
bool is_directive_alone(const std::string& text) {
  const bool directive = text.starts_with('%') || text.find("\n%") != std::string::npos;
  return directive && text.find("---") == std::string::npos;
}

}  // namespace

std::optional<YamlTree> parse_yaml_tree(const YamlText& text, Diagnostics& diagnostics) {
  TreeBuilder builder(text);
  try {
    std::istringstream stream(text.text() + closing(text.text()));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    YamlTree tree = builder.take();
    if (tree.size() <= 1 && is_directive_alone(text.text())) {
      throw Stop{{}, "not valid YAML: a directive (%) without a document (---)"};
    }
    return tree;
  } catch (const Stop& stop) {
    diagnostics.error(stop.position, stop.message);
  } catch (const YAML::Exception& error) {
    diagnostics.error(builder.place(error.mark), "not valid YAML: " + error.msg);
  } catch (const std::exception& error) {
    diagnostics.error({}, fmt::format("not valid YAML: {}", error.what()));
  }
  return std::nullopt;
}

}  // namespace amaxscope
