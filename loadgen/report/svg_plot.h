#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ragcache::loadgen {

struct PlotLine {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x above 0
  bool dashed = false;
};

struct PlotText {
  std::string title;
  std::string x_label;
  std::string y_label;
};

// A drawing of lines as an SVG document: x by its logarithm, y from 0.
std::string svg_plot(const PlotText& text, const std::vector<PlotLine>& lines);

}  // namespace ragcache::loadgen
