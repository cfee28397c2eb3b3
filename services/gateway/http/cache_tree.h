#pragma once

#include <string>

#include "ragcache/controller/v1/controller.pb.h"
#include "services/gateway/request/json.h"

// The knowledge tree for programs and for people. All three take the nodes as they come: parents
// before children.
namespace ragcache::gateway {

OutJson tree_json(const controller::v1::GetCacheTreeResponse& tree);

// A line for each node, children indented below their parent.
std::string tree_text(const controller::v1::GetCacheTreeResponse& tree);

// A Graphviz digraph.
std::string tree_dot(const controller::v1::GetCacheTreeResponse& tree);

}  // namespace ragcache::gateway
