#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/experiment/experiment.h"
#include "loadgen/experiment/experiment_command.h"
#include "loadgen/experiment/experiment_report.h"
#include "loadgen/experiment/interrupts.h"
#include "loadgen/experiment/material.h"
#include "loadgen/experiment/prediction.h"

namespace ragcache::loadgen {

// What experiments with RAGCache's own servers stand on: the workload with what retrieval finds, a
// folder for states and logs, the documents in it, and T(cached, new) as the engine measured it.
class Workbench {
 public:
  // Reads the workload and sizes the tiers. INVALID_ARGUMENT names the option.
  static absl::StatusOr<std::unique_ptr<Workbench>> create(const ExperimentCommand& command);
  ~Workbench();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  const Material& material() const { return material_; }
  uint64_t device_mib() const { return device_mib_; }
  uint64_t host_mib() const { return host_mib_; }
  uint64_t tokens_in(uint64_t mib) const { return (mib << 20) / material_.kv_bytes_per_token; }
  // As RAGCache's servers keep them.
  uint64_t own_tokens_in(uint64_t mib) const;
  // Of every server.
  uint32_t threads() const { return threads_; }

  // Ingests the documents, if a server is to have them, and has the engine measure its prefill
  // times, by a server that runs for no longer than that.
  absl::Status prepare();

  // A `ragcache serve` on this folder, whose KV does not outlive it, with these options besides.
  absl::StatusOr<Contender> ragcache(const std::string& name,
                                     const std::vector<std::string>& flags) const;
  // A file for a server's output.
  std::string log_of(const std::string& name) const { return folder_ + "/" + name + ".log"; }

  // Prefill times of the counted requests if the cache were this one.
  absl::StatusOr<std::vector<double>> predict(const CacheModel& cache) const;

  ExperimentOptions experiment(const std::string& baseline);
  // The experiment has run: a temporary folder, with its logs, goes as well.
  void done() { keeps_folder_ = false; }
  // Title, facts and files of the report.
  ExperimentReport report(const std::string& title) const;

 private:
  Workbench(const ExperimentCommand& command, Material material);

  std::string state_dir() const;

  const ExperimentCommand command_;
  const Material material_;
  uint64_t device_mib_ = 0;
  uint64_t host_mib_ = 0;
  const uint32_t threads_;
  Interrupts interrupts_;
  std::string folder_;
  bool keeps_folder_ = true;
  std::string program_;
  std::string arena_;
  std::optional<controller::PrefillCost> prefill_cost_;
};

}  // namespace ragcache::loadgen
