#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ragcache::loadgen {

struct ChartLine {
  std::string label;
  std::vector<std::pair<double, double>> points;
  bool dashed = false;
};

// Lines over one x axis, y from 0.
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // x above 0
  std::vector<ChartLine> lines;
};

// Draws it to folder/name.svg and folder/name.png, making the folder.
absl::Status write_chart(const std::string& folder, const std::string& name, const Chart& chart);

// The drawing as an SVG document, for a page.
std::string svg_of(const Chart& chart);

}  // namespace ragcache::loadgen
