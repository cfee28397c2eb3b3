#include "loadgen/experiment/experiment_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/chart.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/html_page.h"
#include "loadgen/report/report_file.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::ordered_json;

std::optional<double> capacity_of(const ExperimentResult& result) {
  return result.capacity_rps > 0 ? std::optional(result.capacity_rps) : std::nullopt;
}

ordered_json run_json(const ExperimentReport& report, const ExperimentResult& result,
                      const ExperimentRun& run) {
  ordered_json json{
      {report.kind, run.contender}, {"rate", run.rate}, {"rate_share", run.rate_share}};
  json.update(to_json(run.summary));
  // Nothing is prefilled before the search has ended, so all of it is waited for.
  json["search_not_overlapped_ms"] = or_null(run.summary.search_ms.known(&Statistics::mean));
  json["round_ttft_ms"] = ordered_json::array();
  for (const ExperimentRun::Round& round : run.rounds) {
    json["round_ttft_ms"].push_back(or_null(round.ttft_ms));
  }
  ordered_json predicted{{"ttft_ms", or_null(run.predicted_ttft_ms)},
                         {"ratio_vs", ordered_json::object()}};
  for (const char* key : {"ratio_vs", "round_ratio_vs", "ratio_vs_median", "of_predicted"}) {
    json[key] = ordered_json::object();
  }
  for (const std::string& other : report.ratios) {
    json["ratio_vs"][other] = or_null(result.ratio_vs(run, other));
    json["round_ratio_vs"][other] = result.round_ratios_vs(run, other);
    json["ratio_vs_median"][other] = or_null(result.median_ratio_vs(run, other));
    json["of_predicted"][other] = or_null(result.share_of_predicted(run, other));
    predicted["ratio_vs"][other] = or_null(result.predicted_ratio_vs(run, other));
  }
  if (run.predicted_ttft_ms.has_value()) json["predicted"] = std::move(predicted);
  return json;
}

// A figure of all rounds together, and the least and the most of the rounds.
std::string with_spread(std::optional<double> value, const std::vector<double>& rounds,
                        int decimals) {
  std::string text = fixed(value, decimals);
  if (rounds.size() > 1) {
    const auto [least, most] = std::minmax_element(rounds.begin(), rounds.end());
    text += str_cat(" (", fixed(*least, decimals), "–", fixed(*most, decimals), ")");
  }
  return text;
}

// "p50/p99".
std::string percentiles(const Statistics& figures) {
  return figures.count > 0 ? str_cat(fixed(figures.p50, 0), "/", fixed(figures.p99, 0)) : "–";
}

bool was_run(const ExperimentRun& run) { return !run.rounds.empty(); }

std::vector<double> round_means(const ExperimentRun& run) {
  std::vector<double> means;
  for (const ExperimentRun::Round& round : run.rounds) {
    if (round.ttft_ms.has_value()) means.push_back(*round.ttft_ms);
  }
  return means;
}

Table prediction_table(const ExperimentReport& report, const ExperimentResult& result) {
  Table table{{report.kind, "share", "req/s", "predicted TTFT ms"}, {}};
  for (const std::string& other : report.ratios) table.header.push_back("× " + other);
  for (const ExperimentRun& run : result.runs) {
    std::vector<std::string> row{run.contender, fixed(run.rate_share, 2), fixed(run.rate, 3),
                                 fixed(run.predicted_ttft_ms, 0)};
    for (const std::string& other : report.ratios) {
      row.push_back(fixed(result.predicted_ratio_vs(run, other), 2));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table table_of(const ExperimentReport& report, const ExperimentResult& result) {
  if (std::none_of(result.runs.begin(), result.runs.end(), was_run)) {
    return prediction_table(report, result);
  }
  Table table{{report.kind, "share", "req/s", "answered/s", "TTFT ms", "p50", "p90", "p99",
               "TPOT ms", "hit tokens", "hit docs", "ceiling", "sched µs p50/p99", "late ms p99"},
              {}};
  for (const std::string& other : report.ratios) {
    table.header.push_back("× " + other);
    table.header.push_back("median");
    table.header.push_back("predicted");
    table.header.push_back("of it");
  }
  table.header.push_back("errors");
  for (const ExperimentRun& run : result.runs) {
    const Summary& summary = run.summary;
    const Statistics& ttft = summary.ttft_ms;
    std::vector<std::string> row{run.status.ok() ? run.contender : run.contender + ", in part",
                                 fixed(run.rate_share, 2),
                                 fixed(run.rate, 3),
                                 fixed(summary.throughput_rps, 3),
                                 with_spread(ttft.known(&Statistics::mean), round_means(run), 0),
                                 fixed(ttft.known(&Statistics::p50), 0),
                                 fixed(ttft.known(&Statistics::p90), 0),
                                 fixed(ttft.known(&Statistics::p99), 0),
                                 fixed(summary.tpot_ms.known(&Statistics::mean), 1),
                                 fixed(summary.token_hit_ratio(), 3),
                                 fixed(summary.document_hit_ratio(), 3),
                                 fixed(summary.ceiling(), 2),
                                 percentiles(summary.scheduling_us),
                                 fixed(summary.client_delay_ms.known(&Statistics::p99), 3)};
    for (const std::string& other : report.ratios) {
      row.push_back(
          with_spread(result.ratio_vs(run, other), result.round_ratios_vs(run, other), 2));
      row.push_back(fixed(result.median_ratio_vs(run, other), 2));
      row.push_back(fixed(result.predicted_ratio_vs(run, other), 2));
      row.push_back(fixed(result.share_of_predicted(run, other), 2));
    }
    row.push_back(std::to_string(summary.requests - summary.answered));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table facts_table(const ExperimentReport& report, const ExperimentResult& result) {
  Table table{{"", ""}, {}};
  for (const auto& [name, value] : report.facts) table.rows.push_back({name, value});
  table.rows.push_back({"capacity of the baseline, req/s", fixed(capacity_of(result), 3)});
  if (result.slo_ttft_ms.has_value()) {
    table.rows.push_back({"objective, mean TTFT ms", fixed(result.slo_ttft_ms, 0)});
  }
  for (const auto& [name, throughput] : result.throughput_at_slo) {
    table.rows.push_back({str_cat("throughput within it, req/s: ", name),
                          str_cat(throughput.at_least ? "≥ " : "", fixed(throughput.rps, 3))});
  }
  return table;
}

Chart chart_of(const ExperimentReport& report, const ExperimentResult& result) {
  Chart chart{.title = report.title,
              .x_label = "rate, share of what the baseline sustains",
              .y_label = "mean time to first token, ms"};
  for (const ExperimentRun& run : result.runs) {
    auto line = std::find_if(chart.lines.begin(), chart.lines.end(),
                             [&run](const ChartLine& each) { return each.label == run.contender; });
    if (line == chart.lines.end()) line = chart.lines.insert(line, ChartLine{run.contender, {}});
    const std::optional<double> ttft_ms =
        was_run(run) ? run.summary.ttft_ms.known(&Statistics::mean) : run.predicted_ttft_ms;
    if (ttft_ms.has_value()) line->points.emplace_back(run.rate_share, *ttft_ms);
  }
  for (ChartLine& line : chart.lines) std::sort(line.points.begin(), line.points.end());
  return chart;
}

std::string early_end(const ExperimentResult& result) {
  return str_cat("Not all was run or answered: ", result.status.message());
}

absl::Status write_json(const ExperimentReport& report, const ExperimentResult& result) {
  return write_report(report.json, to_json(report, result).dump(2) + "\n");
}

absl::Status write_experiment(const ExperimentReport& report, const ExperimentResult& result) {
  if (report.json != "-") std::fputs(to_text(report, result).c_str(), stdout);
  if (!report.json.empty()) {
    RAG_RETURN_IF_ERROR(write_json(report, result));
  }
  const Chart chart = chart_of(report, result);
  if (!report.plots.empty()) {
    RAG_RETURN_IF_ERROR(write_chart(report.plots, "ttft_" + report.workload, chart));
  }
  if (!report.html.empty()) {
    HtmlPage page(report.title);
    if (!result.status.ok()) page.paragraph(early_end(result));
    page.table(facts_table(report, result));
    page.chart(chart);
    page.heading("Runs");
    page.table(table_of(report, result));
    page.heading("Servers");
    for (const auto& [name, command] : result.commands) {
      page.paragraph(str_cat(name, ": ", command));
    }
    page.heading("Environment");
    page.environment(environment());
    RAG_RETURN_IF_ERROR(write_report(report.html, page.html()));
  }
  return result.status;
}

}  // namespace

ordered_json to_json(const ExperimentReport& report, const ExperimentResult& result) {
  ordered_json json{{"workload", report.workload},
                    {"capacity_rps", or_null(capacity_of(result))},
                    {"slo_ttft_ms", or_null(result.slo_ttft_ms)},
                    {"complete", result.status.ok()},
                    {"stopped_because", std::string(result.status.message())},
                    {"facts", ordered_json::object()},
                    {"runs", ordered_json::array()},
                    {"throughput_at_slo", ordered_json::object()},
                    {"throughput_at_least", ordered_json::array()},
                    {"commands", ordered_json::object()}};
  for (const auto& [name, value] : report.facts) json["facts"][name] = value;
  for (const ExperimentRun& run : result.runs)
    json["runs"].push_back(run_json(report, result, run));
  for (const auto& [name, throughput] : result.throughput_at_slo) {
    json["throughput_at_slo"][name] = throughput.rps;
    if (throughput.at_least) json["throughput_at_least"].push_back(name);
  }
  for (const auto& [name, command] : result.commands) json["commands"][name] = command;
  json["environment"] = to_json(environment());
  return json;
}

std::string to_text(const ExperimentReport& report, const ExperimentResult& result) {
  std::string text = str_cat(report.title, "\n", to_text(environment()));
  if (!result.status.ok()) text += early_end(result) + "\n";
  text += str_cat(text_table(facts_table(report, result)), "\n");
  // Not in the table, whose columns are as wide as their longest cell.
  for (const auto& [name, command] : result.commands) text += str_cat(name, ": ", command, "\n");
  return text + str_cat("\n", text_table(table_of(report, result)));
}

absl::Status run_and_report(const std::vector<Contender>& contenders,
                            const std::vector<Request>& requests, ExperimentOptions options,
                            const ExperimentReport& report) {
  if (!report.json.empty() && report.json != "-") {
    options.on_run = [&report](const ExperimentResult& so_far) {
      return write_json(report, so_far);
    };
  }
  RAG_ASSIGN_OR_RETURN(const ExperimentResult result,
                       run_experiment(contenders, requests, options));
  return write_experiment(report, result);
}

}  // namespace ragcache::loadgen
