#include "loadgen/run/run_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/strings.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/html_page.h"
#include "loadgen/report/text_table.h"
#include "loadgen/workload/answer_score.h"

namespace ragcache::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTimeSlices = 40;

double to_ms(Duration duration) { return to_seconds(duration) * 1e3; }

// Of the requests that count and were answered.
template <typename Take>
void for_each_answer(const LoadResult& result, uint64_t warm_up, const Take& take) {
  for (size_t i = warm_up; i < result.outcomes.size(); ++i) {
    if (result.outcomes[i].error.empty()) take(i, result.outcomes[i]);
  }
}

AnswerQuality quality_of(const Workload& workload,
                         const std::vector<std::vector<std::string>>& documents,
                         const LoadResult& result, uint64_t warm_up) {
  std::vector<double> found, exact, f1;
  for_each_answer(result, warm_up, [&](size_t i, const Outcome& outcome) {
    const WorkloadRequest& asked = workload.requests[i];
    if (asked.gold) {
      const std::string& id = workload.documents[*asked.gold].id;
      const bool has_it =
          std::find(documents[i].begin(), documents[i].end(), id) != documents[i].end();
      found.push_back(has_it ? 1 : 0);
    }
    if (!asked.answers.empty()) {
      const AnswerScore score = score_answer(outcome.text, asked.answers);
      exact.push_back(score.exact);
      f1.push_back(score.f1);
    }
  });
  const auto mean = [](std::vector<double> values) -> std::optional<double> {
    if (values.empty()) return std::nullopt;
    return statistics(std::move(values)).mean;
  };
  return {
      .recall = mean(std::move(found)), .exact = mean(std::move(exact)), .f1 = mean(std::move(f1))};
}

ChartLine percentiles(std::string label, std::vector<double> samples) {
  ChartLine line{.label = std::move(label), .points = {}};
  if (samples.empty()) return line;
  std::sort(samples.begin(), samples.end());
  for (int percent = 0; percent <= 100; ++percent) {
    line.points.emplace_back(percent, percentile(samples, percent / 100.0));
  }
  return line;
}

Chart latency_chart(const LoadResult& result, uint64_t warm_up) {
  std::vector<double> first_token_ms, end_ms;
  for_each_answer(result, warm_up, [&](size_t, const Outcome& outcome) {
    if (outcome.first_token) first_token_ms.push_back(to_ms(*outcome.first_token - outcome.at));
    end_ms.push_back(to_ms(outcome.end - outcome.at));
  });
  return {.title = "Latency, from when a request should have been sent",
          .x_label = "percent of the requests",
          .y_label = "ms",
          .lines = {percentiles("first token", std::move(first_token_ms)),
                    percentiles("end", std::move(end_ms))}};
}

Chart time_chart(const LoadResult& result, uint64_t warm_up) {
  std::vector<std::pair<double, double>> samples;  // seconds, ms
  for_each_answer(result, warm_up, [&](size_t, const Outcome& outcome) {
    if (!outcome.first_token) return;
    samples.emplace_back(to_seconds(outcome.at), to_ms(*outcome.first_token - outcome.at));
  });
  std::sort(samples.begin(), samples.end());
  Chart chart{.title = "Time to first token as the load goes on",
              .x_label = "s after the start",
              .y_label = "ms",
              .lines = {{.label = "median", .points = {}},
                        {.label = "99th percentile", .points = {}, .dashed = true}}};
  const size_t slices = std::min(kTimeSlices, samples.size());
  for (size_t slice = 0; slice < slices; ++slice) {
    const size_t from = samples.size() * slice / slices;
    const size_t to = samples.size() * (slice + 1) / slices;
    std::vector<double> values;
    for (size_t i = from; i < to; ++i) values.push_back(samples[i].second);
    const Statistics figures = statistics(std::move(values));
    chart.lines[0].points.emplace_back(samples[from].first, figures.p50);
    chart.lines[1].points.emplace_back(samples[from].first, figures.p99);
  }
  return chart;
}

Json to_json(const SkewFigures& figures) {
  return {{"top_share", figures.top_share},
          {"cached_share", figures.warm_cached_share},
          {"ceiling", figures.warm_ceiling()}};
}

std::vector<std::string> row(const char* name, const Statistics& figures, int decimals = 1) {
  return {name,
          fixed(figures.known(&Statistics::mean), decimals),
          fixed(figures.known(&Statistics::p50), decimals),
          fixed(figures.known(&Statistics::p90), decimals),
          fixed(figures.known(&Statistics::p99), decimals),
          fixed(figures.known(&Statistics::max), decimals)};
}

Table latency_table(const Summary& summary) {
  return {.header = {"", "mean", "p50", "p90", "p99", "max"},
          .rows = {row("first token, ms", summary.ttft_ms),
                   row("token after token, ms", summary.tpot_ms),
                   row("end to end, ms", summary.e2e_ms), row("search, ms", summary.search_ms),
                   row("queue, ms", summary.queue_ms), row("scheduling, us", summary.scheduling_us),
                   row("generator's own delay, ms", summary.client_delay_ms, 3)}};
}

Table figure_table(const RunReport& report) {
  const Summary& summary = report.summary;
  Table table{.header = {"", "value"}, .rows = {}};
  const auto add = [&table](std::string name, std::string value) {
    table.rows.push_back({std::move(name), std::move(value)});
  };
  add("requests", str_cat(summary.requests));
  add("answered", str_cat(summary.answered));
  for (const auto& [kind, count] : summary.errors) add(str_cat("failed: ", kind), str_cat(count));
  for (const auto& [kind, count] : report.warm_up_errors) {
    add(str_cat("failed in the warm-up: ", kind), str_cat(count));
  }
  if (summary.resent > 0) add("sent again on a new connection", str_cat(summary.resent));
  if (report.left_out > 0) add("left out, too long", str_cat(report.left_out));
  add("throughput, requests/s", fixed(summary.throughput_rps, 3));
  add("output, tokens/s", fixed(summary.output_tokens_per_s, 1));
  add("token hit ratio", fixed(summary.token_hit_ratio(), 3));
  add("document hit ratio", fixed(summary.document_hit_ratio(), 3));
  add("ceiling at that token hit ratio", fixed(summary.ceiling(), 2));
  const AnswerQuality& quality = report.quality;
  if (quality.recall) add("recall of the right document", fixed(*quality.recall, 3));
  if (quality.exact) add("right answers, exact", fixed(*quality.exact, 3));
  if (quality.f1) add("right answers, F1", fixed(*quality.f1, 3));
  return table;
}

Table skew_table(const Skew& skew) {
  const auto both = [&](std::string name, double (*value)(const SkewFigures&), int decimals) {
    return std::vector<std::string>{std::move(name), fixed(value(skew.requests), decimals),
                                    fixed(value(skew.uniform), decimals)};
  };
  return {.header = {"documents of the prompts", "here", "uniform draws"},
          .rows = {both(
                       str_cat("share of the most wanted ", Skew::kTopPercent, " %"),
                       [](const SkewFigures& f) { return f.top_share; }, 3),
                   both(
                       "tokens an unlimited cache has",
                       [](const SkewFigures& f) { return f.warm_cached_share; }, 3),
                   both(
                       "ceiling of what that gains",
                       [](const SkewFigures& f) { return f.warm_ceiling(); }, 2)}};
}

std::string description(const RunReport& report) {
  return str_cat(report.workload, report.substituted ? " (substituted texts)" : "", " at ",
                 report.endpoint, ": ", report.arrivals, " arrivals, ", fixed(report.rate, 3),
                 " requests/s, ", report.summary.requests, " requests after a warm-up of ",
                 report.warm_up, "; seed ", report.seed);
}

std::string early_end(const Summary& summary) {
  return summary.complete ? "" : str_cat("ended early, this is a part: ", summary.stopped_because);
}

}  // namespace

RunReport make_run_report(const Workload& workload,
                          const std::vector<std::vector<std::string>>& known,
                          const LoadResult& result, uint64_t warm_up, uint64_t seed) {
  std::vector<std::vector<std::string>> documents = known;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (documents[i].empty()) documents[i] = result.outcomes[i].documents;
  }
  RunReport report;
  report.workload = workload.name;
  report.substituted = workload.substituted;
  report.left_out = workload.left_out;
  report.seed = seed;
  report.warm_up = warm_up;
  for (size_t i = 0; i < std::min<size_t>(warm_up, result.outcomes.size()); ++i) {
    const Outcome& outcome = result.outcomes[i];
    if (outcome.error.empty()) continue;
    ++report.warm_up_errors[outcome.error_kind()];
    if (report.first_warm_up_error.empty()) report.first_warm_up_error = outcome.error;
  }
  report.summary = summarize(result, warm_up);
  if (!workload.documents.empty()) {
    absl::StatusOr<Skew> skew = skew_of(workload, documents, warm_up, seed);
    if (skew.ok()) report.skew = *skew;
  }
  report.quality = quality_of(workload, documents, result, warm_up);
  report.latencies = latency_chart(result, warm_up);
  report.over_time = time_chart(result, warm_up);
  return report;
}

absl::Status check_answered(const RunReport& report) {
  const Summary& summary = report.summary;
  if (summary.answered < summary.requests) {
    return absl::UnavailableError(str_cat(summary.requests - summary.answered, " of ",
                                          summary.requests, " requests failed, the first by ",
                                          summary.first_error));
  }
  uint64_t failed = 0;
  for (const auto& [kind, count] : report.warm_up_errors) failed += count;
  if (failed == 0) return absl::OkStatus();
  return absl::UnavailableError(str_cat(failed, " of the warm-up's ", report.warm_up,
                                        " requests failed, the first by ",
                                        report.first_warm_up_error));
}

Json to_json(const RunReport& report) {
  Json json{{"workload", report.workload}, {"substituted", report.substituted},
            {"left_out", report.left_out}, {"endpoint", report.endpoint},
            {"arrivals", report.arrivals}, {"rate", report.rate},
            {"seed", report.seed},         {"warm_up", report.warm_up}};
  json["warm_up_errors"] = Json::object();
  for (const auto& [kind, count] : report.warm_up_errors) json["warm_up_errors"][kind] = count;
  json.update(to_json(report.summary));
  if (report.skew) {
    json["skew"] = to_json(report.skew->requests);
    json["skew"]["uniform"] = to_json(report.skew->uniform);
  }
  if (report.quality.recall) json["retrieval_recall"] = *report.quality.recall;
  if (report.quality.exact) json["answer_exact"] = *report.quality.exact;
  if (report.quality.f1) json["answer_f1"] = *report.quality.f1;
  json["environment"] = to_json(environment());
  return json;
}

std::string to_text(const RunReport& report) {
  std::string text = description(report) + "\n" + to_text(environment());
  if (!report.summary.complete) text += early_end(report.summary) + "\n";
  text += str_cat("\n", text_table(latency_table(report.summary)), "\n",
                  text_table(figure_table(report)));
  if (report.skew) text += str_cat("\n", text_table(skew_table(*report.skew)));
  return text;
}

std::string to_html(const RunReport& report) {
  HtmlPage page(str_cat("ragcache-loadgen run: ", report.workload));
  page.paragraph(description(report));
  if (!report.summary.complete) page.paragraph(early_end(report.summary));
  page.heading("Latency");
  page.table(latency_table(report.summary));
  page.paragraph(
      "Requests are sent at their scheduled times, whatever became of others, and latency counts "
      "from there; what the generator itself is late by is part of it.");
  page.chart(report.latencies);
  page.chart(report.over_time);
  page.heading("Figures");
  page.table(figure_table(report));
  if (report.skew) page.table(skew_table(*report.skew));
  page.heading("Environment");
  page.environment(environment());
  return page.html();
}

}  // namespace ragcache::loadgen
