#include "loadgen/report/summary.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace ragcache::loadgen {
namespace {

using Json = nlohmann::ordered_json;

double to_ms(Duration duration) { return to_seconds(duration) * 1e3; }

std::optional<double> ratio(std::optional<uint64_t> part, uint64_t whole) {
  if (!part.has_value() || whole == 0) return std::nullopt;
  return static_cast<double>(*part) / static_cast<double>(whole);
}

void add(std::optional<uint64_t>& sum, std::optional<uint32_t> part) {
  if (part.has_value()) sum = sum.value_or(0) + *part;
}

using Figure = std::pair<const char*, double Statistics::*>;
constexpr Figure kMean{"mean", &Statistics::mean};
constexpr Figure kP50{"p50", &Statistics::p50};
constexpr Figure kP90{"p90", &Statistics::p90};
constexpr Figure kP99{"p99", &Statistics::p99};
constexpr Figure kMax{"max", &Statistics::max};

Json to_json(const Statistics& figures,
             std::initializer_list<Figure> told = {kMean, kP50, kP90, kP99}) {
  Json json = Json::object();
  for (const auto& [name, figure] : told) json[name] = or_null(figures.known(figure));
  return json;
}

void add(std::vector<double>& samples, std::optional<double> sample) {
  if (sample.has_value()) samples.push_back(*sample);
}

}  // namespace

Json or_null(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

std::optional<double> Summary::token_hit_ratio() const {
  return ratio(cached_tokens, prompt_tokens);
}
std::optional<double> Summary::document_hit_ratio() const {
  return ratio(cached_documents, documents);
}
std::optional<double> Summary::ceiling() const {
  const std::optional<double> cached = token_hit_ratio();
  if (!cached.has_value()) return std::nullopt;
  return 1 / (1 - *cached);
}

Summary summarize(const LoadResult& result, size_t warm_up) {
  Summary summary;
  summary.complete = result.status.ok();
  summary.stopped_because = std::string(result.status.message());
  std::vector<double> ttft_ms, tpot_ms, e2e_ms, client_delay_ms, search_ms, queue_ms, scheduling_us;
  Duration begin = Duration::max();
  Duration end{};
  for (size_t i = std::min(warm_up, result.outcomes.size()); i < result.outcomes.size(); ++i) {
    const Outcome& outcome = result.outcomes[i];
    ++summary.requests;
    if (outcome.resent) ++summary.resent;
    begin = std::min(begin, outcome.at);
    end = std::max(end, outcome.end);
    const bool was_sent = !outcome.error.starts_with("not sent");
    if (was_sent) client_delay_ms.push_back(to_ms(outcome.sent - outcome.at));
    if (!outcome.error.empty()) {
      ++summary.errors[outcome.error_kind()];
      if (summary.first_error.empty()) summary.first_error = outcome.error;
      continue;
    }
    ++summary.answered;
    e2e_ms.push_back(to_ms(outcome.end - outcome.at));
    if (outcome.first_token) {
      ttft_ms.push_back(to_ms(*outcome.first_token - outcome.at));
      if (outcome.completion_tokens > 1) {
        tpot_ms.push_back(to_ms(outcome.end - *outcome.first_token) /
                          (outcome.completion_tokens - 1));
      }
    }
    add(search_ms, outcome.search_ms);
    add(queue_ms, outcome.queue_ms);
    add(scheduling_us, outcome.scheduling_us);
    summary.prompt_tokens += outcome.prompt_tokens;
    add(summary.cached_tokens, outcome.cached_tokens);
    summary.completion_tokens += outcome.completion_tokens;
    summary.documents += outcome.documents.size();
    add(summary.cached_documents, outcome.cached_documents);
  }
  if (end > begin) {
    summary.seconds = to_seconds(end - begin);
    summary.throughput_rps = static_cast<double>(summary.answered) / summary.seconds;
    summary.output_tokens_per_s = static_cast<double>(summary.completion_tokens) / summary.seconds;
  }
  summary.ttft_ms = statistics(std::move(ttft_ms));
  summary.tpot_ms = statistics(std::move(tpot_ms));
  summary.e2e_ms = statistics(std::move(e2e_ms));
  summary.client_delay_ms = statistics(std::move(client_delay_ms));
  summary.search_ms = statistics(std::move(search_ms));
  summary.queue_ms = statistics(std::move(queue_ms));
  summary.scheduling_us = statistics(std::move(scheduling_us));
  return summary;
}

Json to_json(const Summary& summary) {
  Json errors = Json::object();
  for (const auto& [kind, count] : summary.errors) errors[kind] = count;
  return {{"requests", summary.requests},
          {"resent", summary.resent},
          {"complete", summary.complete},
          {"stopped_because", summary.stopped_because},
          {"errors", std::move(errors)},
          {"ttft_ms", to_json(summary.ttft_ms)},
          {"tpot_ms", to_json(summary.tpot_ms)},
          {"e2e_ms", to_json(summary.e2e_ms)},
          {"throughput_rps", summary.throughput_rps},
          {"output_tokens_per_s", summary.output_tokens_per_s},
          {"token_hit_ratio", or_null(summary.token_hit_ratio())},
          {"document_hit_ratio", or_null(summary.document_hit_ratio())},
          {"ceiling", or_null(summary.ceiling())},
          {"scheduling_us", to_json(summary.scheduling_us, {kP50, kP99})},
          {"search_ms", to_json(summary.search_ms)},
          {"queue_ms", to_json(summary.queue_ms)},
          {"client_delay_ms", to_json(summary.client_delay_ms, {kP50, kP99, kMax})}};
}

}  // namespace ragcache::loadgen
