#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ragcache::loadgen {

// A dashed line is a variant of the one before it: it has that one's colour, with hollow marks.
struct ChartLine {
  std::string label;
  // In the order of the line. What has no place on the axes is left out: a figure that is not
  // finite, an x of 0 or below on a logarithmic axis.
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
