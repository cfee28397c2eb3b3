#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loadgen/workload/trace.h"
#include "services/controller/tree/knowledge_tree.h"

namespace ragcache::loadgen {

// A trace as the knowledge tree sees it: a chain of segments a request, the root's first, and when
// each of them is wanted again.
struct Prefixes {
  static constexpr uint32_t kNever = UINT32_MAX;

  std::vector<std::vector<controller::SegmentSpec>> chains;
  // next_use[i][j]: the first request after i that wants the segment chains[i][j].
  std::vector<std::vector<uint32_t>> next_use;
  uint64_t working_set_blocks = 0;  // of all segments, each once, without the root
};

Prefixes prefixes_of(const Trace& trace, uint32_t block_tokens);

}  // namespace ragcache::loadgen
