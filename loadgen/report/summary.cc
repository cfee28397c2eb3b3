#include "loadgen/report/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
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

Json or_null(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json to_json(const Statistics& figures) {
  return {{"mean", figures.mean}, {"p50", figures.p50}, {"p90", figures.p90}, {"p99", figures.p99}};
}

}  // namespace

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
    search_ms.push_back(outcome.search_ms);
    queue_ms.push_back(outcome.queue_ms);
    scheduling_us.push_back(outcome.scheduling_us);
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
  return {
      {"requests", summary.requests},
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
      {"scheduling_us", {{"p50", summary.scheduling_us.p50}, {"p99", summary.scheduling_us.p99}}},
      {"search_ms", to_json(summary.search_ms)},
      {"queue_ms", to_json(summary.queue_ms)},
      {"client_delay_ms",
       {{"p50", summary.client_delay_ms.p50},
        {"p99", summary.client_delay_ms.p99},
        {"max", summary.client_delay_ms.max}}}};
}

}  // namespace ragcache::loadgen
