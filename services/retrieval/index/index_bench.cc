// Every kind of index over the same vectors: recall@10 against an exact search, searches per second
// of one thread, time to build, bytes per vector.
//
//   services_retrieval_index_bench [--vectors FILE] [--dimension 384] [--count 100000]
//                                  [--queries 1000] [--kinds exact,ivf_flat,…] [--json]
//
// FILE holds rows of `dimension` fp32 values, scaled to length 1; without it, `count` clustered
// vectors are made. The last `queries` rows are searched for and not indexed.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log/log.h"
#include "common/status.h"
#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/testing.h"

namespace ragcache::retrieval {
namespace {

constexpr size_t kBest = 10;
constexpr size_t kAddBatch = 256;

struct Arguments {
  std::string vectors;
  uint32_t dimension = 384;
  size_t count = 100'000;
  size_t queries = 1'000;
  std::string kinds = "exact,ivf_flat,ivf_pq,ivf_sq8,hnsw";
  bool json = false;
};

struct Row {
  std::string kind;
  double recall = 0;
  double searches_per_s = 0;
  double build_s = 0;
  double bytes_per_vector = 0;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      arguments.json = true;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    const std::string value = argv[++i];
    if (name == "--vectors") {
      arguments.vectors = value;
    } else if (name == "--kinds") {
      arguments.kinds = value;
    } else if (name == "--dimension") {
      arguments.dimension = static_cast<uint32_t>(std::atoi(value.c_str()));
    } else if (name == "--count") {
      arguments.count = static_cast<size_t>(std::atoll(value.c_str()));
    } else if (name == "--queries") {
      arguments.queries = static_cast<size_t>(std::atoll(value.c_str()));
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

// [n, dimension]
std::vector<float> load_vectors(const Arguments& arguments) {
  std::vector<float> vectors;
  if (arguments.vectors.empty()) {
    ClusteredVectors source(arguments.dimension, 1 + arguments.count / 100, 0.8f, 1);
    for (size_t i = 0; i < arguments.count + arguments.queries; ++i) {
      const std::vector<float> vector = source.next();
      vectors.insert(vectors.end(), vector.begin(), vector.end());
    }
    return vectors;
  }
  std::ifstream file(arguments.vectors, std::ios::binary | std::ios::ate);
  if (!file) return vectors;
  const auto bytes = static_cast<size_t>(file.tellg());
  vectors.resize(bytes / sizeof(float) / arguments.dimension * arguments.dimension);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(vectors.data()),
            static_cast<std::streamsize>(vectors.size() * sizeof(float)));
  return vectors;
}

class Bench {
 public:
  Bench(uint32_t dimension, std::vector<float> vectors, size_t queries)
      : dimension_(dimension),
        vectors_(std::move(vectors)),
        queries_(queries),
        count_(vectors_.size() / dimension - queries) {}

  absl::StatusOr<Row> run(const std::string& name) {
    Row row = {.kind = name};
    IndexOptions options = {.dimension = dimension_};
    RAG_ASSIGN_OR_RETURN(options.kind, index_kind_from_name(name));
    const TimePoint started = steady_now();
    std::string trained;
    if (const TrainingPlan plan = plan_training(options, count_, nullptr); plan.lists > 0) {
      RAG_ASSIGN_OR_RETURN(trained, train_index(options, plan, sample(plan.sample_size), {}, {}));
    }
    RAG_ASSIGN_OR_RETURN(const auto index, make_index(options, trained));
    for (size_t begin = 0; begin < count_; begin += kAddBatch) {
      std::vector<int64_t> ids;
      for (size_t i = begin; i < std::min(begin + kAddBatch, count_); ++i) {
        ids.push_back(static_cast<int64_t>(i));
      }
      RAG_RETURN_IF_ERROR(index->add(
          ids, std::span(vectors_).subspan(begin * dimension_, ids.size() * dimension_)));
    }
    row.build_s = to_seconds(steady_now() - started);
    row.bytes_per_vector = static_cast<double>(index->memory_bytes()) / static_cast<double>(count_);
    std::vector<std::vector<VectorHit>> results;
    const TimePoint search_started = steady_now();
    for (size_t i = 0; i < queries_; ++i) {
      RAG_ASSIGN_OR_RETURN(results.emplace_back(), index->search(vector(count_ + i), kBest));
    }
    row.searches_per_s = static_cast<double>(queries_) / to_seconds(steady_now() - search_started);
    row.recall = recall(results);
    return row;
  }

 private:
  std::span<const float> vector(size_t row) const {
    return std::span(vectors_).subspan(row * dimension_, dimension_);
  }

  // Spread evenly.
  std::vector<float> sample(size_t size) const {
    std::vector<float> rows;
    rows.reserve(size * dimension_);
    for (size_t i = 0; i < size; ++i) {
      const auto row = vector(i * count_ / size);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }

  double recall(const std::vector<std::vector<VectorHit>>& results) {
    if (truth_.empty()) {
      FlatIndex exact(dimension_);
      for (size_t i = 0; i < count_; ++i) {
        (void)exact.add(std::vector{static_cast<int64_t>(i)}, vector(i));
      }
      for (size_t i = 0; i < queries_; ++i) {
        truth_.push_back(exact.search(vector(count_ + i), kBest).value());
      }
    }
    size_t found = 0;
    for (size_t i = 0; i < queries_; ++i) {
      for (size_t j = 0; j < std::min(kBest, truth_[i].size()); ++j) {
        found += std::ranges::count(results[i], truth_[i][j].id, &VectorHit::id);
      }
    }
    return static_cast<double>(found) / static_cast<double>(queries_ * std::min(kBest, count_));
  }

  const uint32_t dimension_;
  const std::vector<float> vectors_;
  const size_t queries_;
  const size_t count_;
  std::vector<std::vector<VectorHit>> truth_;
};

int run(const Arguments& arguments) {
  std::vector<float> vectors = load_vectors(arguments);
  if (vectors.size() <= arguments.queries * arguments.dimension) {
    std::fprintf(stderr, "%s: not more than %zu rows of %u values\n", arguments.vectors.c_str(),
                 arguments.queries, arguments.dimension);
    return 2;
  }
  log::set_level(log::Level::kWarn);
  const size_t count = vectors.size() / arguments.dimension - arguments.queries;
  Bench bench(arguments.dimension, std::move(vectors), arguments.queries);
  nlohmann::json report = {{"vectors", count},
                           {"dimension", arguments.dimension},
                           {"queries", arguments.queries},
                           {"kinds", nlohmann::json::array()}};
  if (!arguments.json) {
    std::printf("%zu vectors of %u, %zu queries\n%-9s %10s %12s %9s %13s\n", count,
                arguments.dimension, arguments.queries, "kind", "recall@10", "searches/s",
                "build, s", "bytes/vector");
  }
  for (size_t begin = 0; begin < arguments.kinds.size();) {
    const size_t end = std::min(arguments.kinds.find(',', begin), arguments.kinds.size());
    const auto row = bench.run(arguments.kinds.substr(begin, end - begin));
    begin = end + 1;
    if (!row.ok()) {
      std::fprintf(stderr, "%s\n", std::string(row.status().message()).c_str());
      return 2;
    }
    report["kinds"].push_back({{"kind", row->kind},
                               {"recall_at_10", row->recall},
                               {"searches_per_s", row->searches_per_s},
                               {"build_s", row->build_s},
                               {"bytes_per_vector", row->bytes_per_vector}});
    if (arguments.json) continue;
    std::printf("%-9s %10.4f %12.0f %9.1f %13.0f\n", row->kind.c_str(), row->recall,
                row->searches_per_s, row->build_s, row->bytes_per_vector);
    std::fflush(stdout);
  }
  if (arguments.json) std::printf("%s\n", report.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace ragcache::retrieval

int main(int argc, char** argv) {
  const auto arguments = ragcache::retrieval::parse(argc, argv);
  if (!arguments.has_value() || arguments->dimension == 0 || arguments->queries == 0) {
    std::fprintf(stderr,
                 "usage: %s [--vectors FILE] [--dimension N] [--count N] [--queries N] "
                 "[--kinds KIND,…] [--json]\n",
                 argv[0]);
    return 2;
  }
  return ragcache::retrieval::run(*arguments);
}
