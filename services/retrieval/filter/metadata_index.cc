#include "services/retrieval/filter/metadata_index.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/check.h"

namespace ragcache::retrieval {
namespace {

// Postings are cleaned when this many vectors and more than there are have been removed.
constexpr size_t kRemovedMin = 4096;

}  // namespace

void MetadataIndex::add(std::span<const int64_t> vectors, const Metadata& metadata) {
  const std::unique_lock lock(mutex_);
  for (const int64_t vector : vectors) live_.insert(vector);
  live_count_ += vectors.size();
  for (const MetadataField& field : metadata) {
    Field& known = fields_[field.name];
    RAG_CHECK(vectors.empty() || known.any.empty() || known.any.back() < vectors.front());
    known.any.insert(known.any.end(), vectors.begin(), vectors.end());
    for (const MetadataValue& value : field.values) {
      Posting& posting = known.by_value[value];
      // A list may have a value twice.
      if (!vectors.empty() && !posting.empty() && posting.back() == vectors.back()) continue;
      posting.insert(posting.end(), vectors.begin(), vectors.end());
    }
  }
}

void MetadataIndex::withdraw(std::span<const int64_t> vectors, const Metadata& metadata) {
  if (vectors.empty()) return;
  const std::unique_lock lock(mutex_);
  for (const int64_t vector : vectors) live_.erase(vector);
  live_count_ -= vectors.size();
  const auto cut = [&](Posting& posting) {
    posting.erase(std::ranges::lower_bound(posting, vectors.front()), posting.end());
    return posting.empty();
  };
  for (const MetadataField& field : metadata) {
    Field& known = fields_[field.name];
    for (const MetadataValue& value : field.values) {
      if (cut(known.by_value[value])) known.by_value.erase(value);
    }
    if (cut(known.any)) fields_.erase(field.name);
  }
}

void MetadataIndex::remove(std::span<const int64_t> vectors) {
  const std::unique_lock lock(mutex_);
  for (const int64_t vector : vectors) {
    if (!live_.allows(vector)) continue;
    live_.erase(vector);
    --live_count_;
    ++removed_count_;
  }
  if (removed_count_ >= kRemovedMin && removed_count_ > live_count_) drop_removed();
}

void MetadataIndex::drop_removed() {
  const auto clean = [this](Posting& posting) {
    std::erase_if(posting, [this](int64_t vector) { return !live_.allows(vector); });
    posting.shrink_to_fit();
  };
  for (auto& [name, field] : fields_) {
    clean(field.any);
    for (auto& [value, posting] : field.by_value) clean(posting);
    std::erase_if(field.by_value, [](const auto& entry) { return entry.second.empty(); });
  }
  std::erase_if(fields_, [](const auto& entry) { return entry.second.any.empty(); });
  removed_count_ = 0;
}

// Adds what the field itself says; conditions that its absence meets are the caller's.
void MetadataIndex::select_into(IdSet& found, const Field& field,
                                const Filter::Condition& condition) const {
  using Operator = Filter::Operator;
  const auto take = [&](const Posting& posting) {
    for (const int64_t vector : posting) found.insert(vector);
  };
  const auto& values = field.by_value;
  switch (condition.op) {
    case Operator::kIn:
    case Operator::kNotIn:
      for (const MetadataValue& value : condition.values) {
        if (const auto at = values.find(value); at != values.end()) take(at->second);
      }
      return;
    case Operator::kExists:
      return take(field.any);
    default:
      break;
  }
  const MetadataValue& bound = condition.values[0];
  auto begin = values.begin();
  auto end = values.end();
  if (condition.op == Operator::kLess) end = values.lower_bound(bound);
  if (condition.op == Operator::kLessOrEqual) end = values.upper_bound(bound);
  if (condition.op == Operator::kGreater) begin = values.upper_bound(bound);
  if (condition.op == Operator::kGreaterOrEqual) begin = values.lower_bound(bound);
  for (; begin != end; ++begin) {
    if (begin->first.index() == bound.index()) take(begin->second);
  }
}

std::shared_ptr<const IdSet> MetadataIndex::select(const Filter& filter) const {
  using Operator = Filter::Operator;
  const std::shared_lock lock(mutex_);
  auto selected = std::make_shared<IdSet>(live_);
  for (const Filter::Condition& condition : filter.conditions) {
    IdSet found;
    if (const auto field = fields_.find(condition.field); field != fields_.end()) {
      select_into(found, field->second, condition);
    }
    const bool is_inverse =
        condition.op == Operator::kNotIn ||
        (condition.op == Operator::kExists && !std::get<bool>(condition.values[0]));
    if (is_inverse) {
      selected->subtract(found);
    } else {
      *selected &= found;
    }
  }
  return selected;
}

size_t MetadataIndex::size() const {
  const std::shared_lock lock(mutex_);
  return live_count_;
}

}  // namespace ragcache::retrieval
