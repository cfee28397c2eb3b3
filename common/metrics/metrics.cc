#include "common/metrics/metrics.h"

#include <prometheus/text_serializer.h>

namespace ragcache::metrics {

prometheus::Counter& counter(prometheus::Registry& registry, const std::string& name,
                             const std::string& help, const prometheus::Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const std::string& name,
                         const std::string& help, const prometheus::Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Histogram& histogram(prometheus::Registry& registry, const std::string& name,
                                 const std::string& help,
                                 const prometheus::Histogram::BucketBoundaries& buckets,
                                 const prometheus::Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

const prometheus::Histogram::BucketBoundaries& latency_buckets() {
  static const prometheus::Histogram::BucketBoundaries kBuckets = {
      .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
  return kBuckets;
}

std::string to_text(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace ragcache::metrics
