#include <CLI/CLI.hpp>

#include "loadgen/experiment/experiment_command.h"
#include "loadgen/run/load_options.h"
#include "loadgen/run/workload_options.h"

namespace ragcache::loadgen {

void add_experiment_options(CLI::App& command, ExperimentCommand& options) {
  const auto add = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str();
  };
  add("--model", options.model, "language model that every server loads")->required();
  add("--embedding-model", options.embedding_model, "folder of the sentence encoder")->required();
  add("--top-k", options.top_k, "documents to find for a request; zipf: that it names")
      ->check(CLI::Range(1, 100));
  add("--warm-up", options.warm_up, "requests before those that count, a few at a time");
  add("--requests", options.requests, "requests that count")->check(CLI::Range(1, 1 << 24));
  add("--seed", options.workload.seed, "of the arrivals and of what is drawn");
  add("--rates", options.rates, "shares of what the baseline sustains, by commas")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 100.0));
  add("--capacity", options.capacity,
      "requests a second that the baseline sustains; 0: measured first");
  add("--capacity-requests", options.capacity_requests, "sent at once to measure that")
      ->check(CLI::Range(1, 1 << 20));
  add("--rounds", options.rounds,
      "times that all of it is run, by turns; 0: only what is predicted, without running it")
      ->check(CLI::Range(0, 100));
  add("--device-share", options.device_share, "device tier, as a share of the run's working set")
      ->check(CLI::Range(1e-6, 10.0));
  add("--host-share", options.host_share, "host tier, likewise")->check(CLI::Range(0.0, 10.0));
  add("--slo-factor", options.slo_factor,
      "the objective is so many times the baseline's mean TTFT at the lowest rate")
      ->check(CLI::Range(1.0, 1e6));
  add("--threads", options.threads, "of each server's model; 0: as many as there are cores")
      ->check(CLI::Range(0, 1024));
  add("--activations", options.activations, "of RAGCache's servers, as they have that option")
      ->check(CLI::IsMember({"fp32", "int8"}));
  add("--kv-dtype", options.kv_dtype, "likewise; tiers are sized in fp16 whatever it is")
      ->check(CLI::IsMember({"fp16", "fp32", "int8"}));
  add("--ragcache", options.ragcache, "the program `ragcache`; default: beside this one");
  add("--profile", options.profile,
      "prefill times to predict by, and for the servers, as a worker keeps them; default: measured "
      "first, for a minute");
  add("--work-dir", options.work_dir,
      "keep documents, measured prefill times and logs here; default: a temporary folder");
  add_workload_options(command, options.workload);
  add_arrival_options(command, options.arrivals);
  add_load_options(command, options.load);
  add("--json", options.json,
      "write the results here; -: to standard output, instead of the table");
  add("--plots", options.plots, "folder for charts, as SVG and PNG");
  add("--report", options.report, "write an HTML page here");
}

}  // namespace ragcache::loadgen
