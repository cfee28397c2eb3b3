#include "services/gateway/http/cache_tree.h"

#include <cstdio>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/hash.h"
#include "common/strings.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;

constexpr size_t kShortIdBytes = 4;

std::string hex_of(std::string_view id) {
  return to_hex({reinterpret_cast<const uint8_t*>(id.data()), id.size()});
}

std::string_view residence_name(pb::Residence residence) {
  if (residence == pb::RESIDENCE_READY) return "ready";
  return residence == pb::RESIDENCE_PENDING ? "pending" : "none";
}

// Upper case where the KV is, lower case where it is on its way: "DH", "dH".
std::string tier_marks(const pb::CacheNode& node) {
  std::string marks;
  if (node.device() == pb::RESIDENCE_READY) marks += 'D';
  if (node.device() == pb::RESIDENCE_PENDING) marks += 'd';
  if (node.host() == pb::RESIDENCE_READY) marks += 'H';
  if (node.host() == pb::RESIDENCE_PENDING) marks += 'h';
  return marks;
}

// The document; of a node without one, what it is and the beginning of its id.
std::string name_of(const pb::CacheNode& node) {
  if (!node.document_id().empty()) return node.document_id();
  return str_cat(node.parent_id().empty() ? "root " : "segment ",
                 hex_of(node.segment_id().substr(0, kShortIdBytes)));
}

// On one line: what is no printable character becomes '?'.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string details_of(const pb::CacheNode& node, std::string_view separator) {
  char priority[32];
  std::snprintf(priority, sizeof(priority), "%.4g", node.priority());
  return str_cat(node.tokens(), " tokens", separator, tier_marks(node), separator, node.users(),
                 " users", separator, node.kept() ? str_cat("pinned", separator) : "", "priority ",
                 priority);
}

std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

OutJson tree_json(const pb::GetCacheTreeResponse& tree) {
  OutJson nodes = OutJson::array();
  for (const pb::CacheNode& node : tree.nodes()) {
    OutJson parent = nullptr, document = nullptr;
    if (!node.parent_id().empty()) parent = hex_of(node.parent_id());
    if (!node.document_id().empty()) document = node.document_id();
    nodes.push_back({{"id", hex_of(node.segment_id())},
                     {"parent", std::move(parent)},
                     {"document", std::move(document)},
                     {"tokens", node.tokens()},
                     {"device", residence_name(node.device())},
                     {"host", residence_name(node.host())},
                     {"users", node.users()},
                     {"pinned", node.kept()},
                     {"priority", node.priority()}});
  }
  return {{"total_nodes", tree.total_nodes()}, {"nodes", std::move(nodes)}};
}

std::string tree_text(const pb::GetCacheTreeResponse& tree) {
  const int count = tree.nodes_size();
  std::unordered_map<std::string_view, int> index_of;
  std::vector<std::vector<int>> children(count);
  std::vector<int> roots;
  for (int i = 0; i < count; ++i) {
    index_of.emplace(tree.nodes(i).segment_id(), i);
    const auto parent = index_of.find(tree.nodes(i).parent_id());
    (parent == index_of.end() ? roots : children[parent->second]).push_back(i);
  }
  std::string text = str_cat(count, " of ", tree.total_nodes(), " nodes\n");
  // By a stack of our own: a path may be thousands of nodes long.
  std::vector<std::pair<int, size_t>> open;  // node and depth, the next one last
  const auto push = [&open](const std::vector<int>& nodes, size_t depth) {
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) open.emplace_back(*node, depth);
  };
  push(roots, 0);
  while (!open.empty()) {
    const auto [i, depth] = open.back();
    open.pop_back();
    const pb::CacheNode& node = tree.nodes(i);
    text += str_cat(std::string(2 * depth, ' '), one_line(name_of(node)), "  ",
                    details_of(node, "  "), "\n");
    push(children[i], depth + 1);
  }
  return text;
}

std::string tree_dot(const pb::GetCacheTreeResponse& tree) {
  std::string dot = "digraph cache {\n  node [shape=box];\n";
  for (const pb::CacheNode& node : tree.nodes()) {
    const std::string id = dot_string(hex_of(node.segment_id()));
    std::string label = dot_string(one_line(name_of(node)));
    label.insert(label.size() - 1, str_cat("\\n", details_of(node, ", ")));
    dot += str_cat("  ", id, " [label=", label, node.kept() ? ", peripheries=2" : "", "];\n");
    if (!node.parent_id().empty()) {
      dot += str_cat("  ", dot_string(hex_of(node.parent_id())), " -> ", id, ";\n");
    }
  }
  return dot + "}\n";
}

}  // namespace ragcache::gateway
