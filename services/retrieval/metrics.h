#pragma once

#include <string>

#include "common/metrics/metrics.h"

namespace ragcache::retrieval {

struct Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : embed_seconds(stage(registry, "embed")),
        index_seconds(stage(registry, "index")),
        documents(metrics::gauge(registry, "ragcache_documents", "Documents in all corpora")),
        ingested_documents(metrics::counter(registry, "ragcache_ingested_documents_total",
                                            "Documents stored, those sent again included")),
        ingested_tokens(metrics::counter(registry, "ragcache_ingested_tokens_total",
                                         "Tokens embedded at ingest")) {}

  prometheus::Histogram& embed_seconds;
  prometheus::Histogram& index_seconds;
  prometheus::Gauge& documents;
  prometheus::Counter& ingested_documents;
  prometheus::Counter& ingested_tokens;

 private:
  static prometheus::Histogram& stage(prometheus::Registry& registry, const std::string& name) {
    return metrics::histogram(registry, "ragcache_search_seconds",
                              "Time of a search: embedding the question with its wait, and index "
                              "with documents",
                              metrics::latency_buckets(), {{"stage", name}});
  }
};

}  // namespace ragcache::retrieval
