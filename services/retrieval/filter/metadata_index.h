#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "services/retrieval/filter/filter.h"
#include "services/retrieval/filter/id_set.h"
#include "services/retrieval/filter/metadata.h"

namespace ragcache::retrieval {

// The metadata of a corpus' vectors, by value: which vectors have it. In memory; made from the
// document store and kept like it by whoever changes that.
//
// Any thread.
class MetadataIndex {
 public:
  // REQUIRES: vectors are ascending, and greater than all that were ever added, but for what was
  // withdrawn.
  void add(std::span<const int64_t> vectors, const Metadata& metadata);
  // Takes back an add() of the same, whose vectors may come again with other metadata. REQUIRES:
  // none has been removed; all that was added since is withdrawn too.
  void withdraw(std::span<const int64_t> vectors, const Metadata& metadata);
  // Vectors that are not there are none of its business.
  void remove(std::span<const int64_t> vectors);

  // The vectors that meet the filter. REQUIRES: check_filter() is OK.
  std::shared_ptr<const IdSet> select(const Filter& filter) const;

  size_t size() const;

 private:
  using Posting = std::vector<int64_t>;  // ascending; some may have been removed since
  struct Field {
    Posting any;
    std::map<MetadataValue, Posting> by_value;  // texts, then numbers, then flags
  };

  void select_into(IdSet& found, const Field& field, const Filter::Condition& condition) const;
  void drop_removed();

  mutable std::shared_mutex mutex_;
  // Guarded by mutex_:
  std::map<std::string, Field> fields_;
  IdSet live_;
  size_t live_count_ = 0;
  size_t removed_count_ = 0;  // that postings may still have
};

}  // namespace ragcache::retrieval
