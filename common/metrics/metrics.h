#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

// Prometheus metrics in base units, prefix `ragcache_`, variants as labels. Each component has a
// struct of its own metrics (its metrics.h), made once from the process's registry.
namespace ragcache::metrics {

using Registry = std::shared_ptr<prometheus::Registry>;

prometheus::Counter& counter(prometheus::Registry& registry, const std::string& name,
                             const std::string& help, const prometheus::Labels& labels = {});
prometheus::Gauge& gauge(prometheus::Registry& registry, const std::string& name,
                         const std::string& help, const prometheus::Labels& labels = {});
prometheus::Histogram& histogram(prometheus::Registry& registry, const std::string& name,
                                 const std::string& help,
                                 const prometheus::Histogram::BucketBoundaries& buckets,
                                 const prometheus::Labels& labels = {});

// Resolves 1 ms and reaches minutes: vLLM's TTFT buckets (vllm/v1/metrics/loggers.py).
const prometheus::Histogram::BucketBoundaries& latency_buckets();

// The registry in Prometheus' text format.
std::string to_text(const prometheus::Registry& registry);

}  // namespace ragcache::metrics
