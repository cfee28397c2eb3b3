#include "loadgen/report/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

constexpr double kLeft = 60, kTop = 36, kWidth = 420, kHeight = 300;  // of the axes
constexpr double kLegend = 170;
constexpr double kRow = 17;  // of the legend
// Wong's palette, which colour-blind readers tell apart.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#000000", "#56b4e9"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, const std::string& text, const char* anchor,
                    const char* more = "") {
  return str_cat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"",
                 more, ">", escaped(text), "</text>\n");
}

std::string line_from(double x1, double y1, double x2, double y2, const std::string& style) {
  return str_cat("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2),
                 "\" y2=\"", number(y2), "\" ", style, "/>\n");
}

// A round distance between marks, for about five of them.
double mark_distance(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string svg_plot(const PlotText& text, const std::vector<PlotLine>& lines) {
  std::set<double> xs;
  double y_max = 0;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      xs.insert(x);
      y_max = std::max(y_max, y);
    }
  }
  if (xs.empty()) xs.insert(1);
  if (y_max <= 0) y_max = 1;
  y_max *= 1.05;
  const double x_min = std::log(*xs.begin());
  const double x_range = std::max(1e-9, std::log(*xs.rbegin()) - x_min);
  auto place_x = [&](double x) { return kLeft + (std::log(x) - x_min) / x_range * kWidth; };
  auto place_y = [&](double y) { return kTop + (1 - y / y_max) * kHeight; };

  const double width = kLeft + kWidth + 20 + kLegend;
  const double bottom = kTop + kHeight;
  std::string svg =
      str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width), " ",
              number(bottom + 50), "\" font-family=\"sans-serif\" font-size=\"12\">\n",
              "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  svg += text_at(kLeft + kWidth / 2, 20, text.title, "middle", " font-size=\"14\"");
  svg += text_at(kLeft + kWidth / 2, bottom + 40, text.x_label, "middle");
  svg += text_at(16, kTop + kHeight / 2, text.y_label, "middle",
                 str_cat(" transform=\"rotate(-90 16 ", number(kTop + kHeight / 2), ")\"").c_str());
  for (double y = 0; y <= y_max; y += mark_distance(y_max)) {
    svg += line_from(kLeft, place_y(y), kLeft + kWidth, place_y(y), "stroke=\"#ddd\"");
    svg += text_at(kLeft - 6, place_y(y) + 4, number(y), "end");
  }
  for (const double x : xs) {
    svg += line_from(place_x(x), bottom, place_x(x), bottom + 4, "stroke=\"black\"");
    svg += text_at(place_x(x), bottom + 18, number(x), "middle");
  }
  svg += line_from(kLeft, bottom, kLeft + kWidth, bottom, "stroke=\"black\"");
  svg += line_from(kLeft, kTop, kLeft, bottom, "stroke=\"black\"");

  // A dashed line is a variant of the one before it, in its colour.
  size_t colour = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const PlotLine& line = lines[i];
    if (i > 0 && !line.dashed) colour = (colour + 1) % std::size(kColours);
    const std::string style = str_cat("stroke=\"", kColours[colour], "\" stroke-width=\"1.8\"",
                                      line.dashed ? " stroke-dasharray=\"5 4\"" : "");
    std::string points;
    for (const auto& [x, y] : line.points) {
      points += str_cat(number(place_x(x)), ",", number(place_y(y)), " ");
    }
    svg += str_cat("<polyline fill=\"none\" ", style, " points=\"", points, "\"/>\n");
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const double x = kLeft + kWidth + 16;
    svg += line_from(x, y, x + 26, y, style);
    svg += text_at(x + 32, y + 4, line.label, "start");
  }
  return svg + "</svg>\n";
}

}  // namespace ragcache::loadgen
