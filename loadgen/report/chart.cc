#include "loadgen/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/canvas.h"
#include "loadgen/report/png_canvas.h"
#include "loadgen/report/report_file.h"
#include "loadgen/report/svg_canvas.h"

namespace ragcache::loadgen {
namespace {

using Anchor = TextStyle::Anchor;

constexpr double kPlotWidth = 480, kPlotHeight = 310;  // between the axes
constexpr double kTop = 44;
constexpr double kBelow = 52;         // for the x axis' ticks and label
constexpr double kMargin = 16;        // around everything
constexpr double kLegendRow = 19;     // height
constexpr double kLegendSample = 34;  // width
constexpr double kLetter = 7;         // a wide one's width, where a text's own is not known
constexpr double kTicks = 5;          // an axis has about so many
constexpr size_t kMarkedPoints = 40;  // lines of more have no marks
constexpr double kMarkRadius = 4;

constexpr Colour kBlack{0, 0, 0}, kWhite{255, 255, 255}, kGrid{221, 221, 221};
// Okabe and Ito's palette, which colour-blind readers tell apart (B. Wong, "Points of view: Color
// blindness", Nature Methods 8, 441, 2011), without its yellow, which is too light for lines.
constexpr Colour kColours[] = {{0, 114, 178}, {213, 94, 0},   {0, 158, 115}, {204, 121, 167},
                               {230, 159, 0}, {86, 180, 233}, {0, 0, 0}};

// Regular polygons of so many corners, turned by some degrees from one on top.
struct MarkShape {
  int corners;
  double degrees;
};
constexpr MarkShape kMarks[] = {{16, 0}, {4, 45}, {3, 0}, {4, 0}, {3, 180}, {5, 0}, {6, 0}};
static_assert(std::size(kMarks) == std::size(kColours));

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

double width_of(const std::string& text) { return kLetter * static_cast<double>(text.size()); }

// A round distance of about kTicks ticks.
double tick_distance(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / kTicks)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (range / (factor * power) <= kTicks + 2) return factor * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double begin, double end) {
  std::vector<double> ticks;
  const double distance = tick_distance(end - begin);
  const double tolerance = 1e-9 * distance;
  for (double i = std::ceil((begin - tolerance) / distance); i * distance <= end + tolerance; ++i) {
    ticks.push_back(i * distance + 0.0);  // no -0
  }
  return ticks;
}

// 1, 2 and 5 times the powers of ten, or these alone if that is many.
std::vector<double> log_ticks(double begin, double end) {
  std::vector<double> ticks, powers;
  for (double exponent = std::floor(std::log10(begin)); exponent <= std::log10(end); ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, exponent);
      if (tick < begin || tick > end) continue;
      ticks.push_back(tick);
      if (factor == 1) powers.push_back(tick);
    }
  }
  if (ticks.size() < 2) return linear_ticks(begin, end);
  return ticks.size() <= 2 * kTicks ? ticks : powers;
}

struct Axis {
  double begin;
  double end;
  bool log = false;
  std::vector<double> ticks;

  double position(double value) const {  // 0 to 1
    if (log) return std::log(value / begin) / std::log(end / begin);
    return (value - begin) / (end - begin);
  }
};

// The part of the values, with a little room at both ends.
Axis x_axis(double least, double most, bool log) {
  constexpr double kRoom = 0.025;
  Axis axis{.begin = least, .end = most, .log = log};
  if (log) {
    const double room = most > least ? std::pow(most / least, kRoom) : 2;
    axis.begin /= room;
    axis.end *= room;
    axis.ticks = log_ticks(axis.begin, axis.end);
  } else {
    const double room = most > least ? (most - least) * kRoom : std::max(1.0, std::abs(least) / 2);
    axis.begin -= room;
    axis.end += room;
    axis.ticks = linear_ticks(axis.begin, axis.end);
  }
  return axis;
}

// From 0 to the first tick at or above all values.
Axis y_axis(double most) {
  const double distance = tick_distance(most);
  Axis axis{.begin = 0, .end = std::ceil(most / distance - 1e-9) * distance};
  axis.ticks = linear_ticks(0, axis.end);
  return axis;
}

// A chart with a place for everything.
class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double x_least = kInfinity, x_most = -kInfinity, y_most = 0;
    for (const ChartLine& line : chart.lines) {
      for (const auto& [x, y] : line.points) {
        if (!has_place(x, y)) continue;
        x_least = std::min(x_least, x);
        x_most = std::max(x_most, x);
        y_most = std::max(y_most, y);
      }
      legend_width_ = std::max(legend_width_, kLegendSample + 8 + width_of(line.label));
    }
    if (x_least > x_most) x_least = x_most = 1;  // nothing to draw
    x_ = x_axis(x_least, x_most, chart.log_x);
    y_ = y_axis(y_most > 0 ? y_most : 1);
    for (const double tick : y_.ticks) left_ = std::max(left_, width_of(number(tick)));
    left_ += kMargin + 34;
  }

  double width() const { return left_ + kPlotWidth + kMargin + legend_width_ + kMargin; }
  double height() const {
    const double legend = kLegendRow * static_cast<double>(chart_.lines.size());
    return kTop + std::max(kPlotHeight + kBelow, legend + kMargin);
  }

  void draw(Canvas& canvas) const {
    draw_axes(canvas);
    size_t colour = 0;
    for (size_t i = 0; i < chart_.lines.size(); ++i) {
      const ChartLine& line = chart_.lines[i];
      if (i > 0 && !line.dashed) colour = (colour + 1) % std::size(kColours);
      const double y = kTop + kLegendRow * (static_cast<double>(i) + 0.5);
      const double x = left_ + kPlotWidth + kMargin;
      const Point sample[] = {{x, y}, {x + kLegendSample, y}};
      const Point middle[] = {{x + kLegendSample / 2, y}};
      draw_line(canvas, sample, middle, colour, line.dashed);
      canvas.text({x + kLegendSample + 8, y + 4}, line.label, {});

      std::vector<Point> points;
      for (const auto& [px, py] : line.points) {
        if (has_place(px, py)) points.push_back({place_x(px), place_y(py)});
      }
      const std::span<const Point> all(points);
      draw_line(canvas, all, points.size() > kMarkedPoints ? all.first(0) : all, colour,
                line.dashed);
    }
  }

 private:
  bool has_place(double x, double y) const {
    return std::isfinite(x) && std::isfinite(y) && (!chart_.log_x || x > 0);
  }
  double place_x(double x) const { return left_ + x_.position(x) * kPlotWidth; }
  double place_y(double y) const { return kTop + (1 - y_.position(y)) * kPlotHeight; }

  void draw_axes(Canvas& canvas) const {
    const double bottom = kTop + kPlotHeight, right = left_ + kPlotWidth;
    const auto line = [&canvas](Point from, Point to, Colour colour) {
      const Point points[] = {from, to};
      canvas.polyline(points, {.colour = colour});
    };
    for (const double tick : y_.ticks) {
      const double y = place_y(tick);
      line({left_, y}, {right, y}, kGrid);
      canvas.text({left_ - 8, y + 4}, number(tick), {.anchor = Anchor::kEnd});
    }
    for (const double tick : x_.ticks) {
      const double x = place_x(tick);
      line({x, kTop}, {x, bottom}, kGrid);
      line({x, bottom}, {x, bottom + 5}, kBlack);
      canvas.text({x, bottom + 20}, number(tick), {.anchor = Anchor::kMiddle});
    }
    line({left_, bottom}, {right, bottom}, kBlack);
    line({left_, kTop}, {left_, bottom}, kBlack);
    const double middle = left_ + kPlotWidth / 2;
    canvas.text({middle, 26}, chart_.title, {.anchor = Anchor::kMiddle, .size = 15, .bold = true});
    canvas.text({middle, bottom + 42}, chart_.x_label, {.anchor = Anchor::kMiddle, .size = 13});
    canvas.text({kMargin + 8, kTop + kPlotHeight / 2}, chart_.y_label,
                {.anchor = Anchor::kMiddle, .size = 13, .upwards = true});
  }

  static void draw_line(Canvas& canvas, std::span<const Point> points,
                        std::span<const Point> marked, size_t style, bool dashed) {
    const Colour colour = kColours[style];
    if (points.size() > 1) {
      canvas.polyline(points, {.colour = colour, .width = 2, .dashed = dashed});
    }
    for (const Point& at : marked) {
      const MarkShape& shape = kMarks[style];
      std::vector<Point> corners;
      for (int i = 0; i < shape.corners; ++i) {
        const double angle =
            (shape.degrees / 360 + static_cast<double>(i) / shape.corners) * 2 * std::numbers::pi;
        corners.push_back(
            {at.x + kMarkRadius * std::sin(angle), at.y - kMarkRadius * std::cos(angle)});
      }
      canvas.polygon(corners, {.colour = colour, .width = 1.5}, dashed ? kWhite : colour);
    }
  }

  const Chart& chart_;
  Axis x_;
  Axis y_;
  double left_ = 0;  // where the plot begins
  double legend_width_ = 0;
};

}  // namespace

std::string svg_of(const Chart& chart) {
  const Drawing drawing(chart);
  SvgCanvas canvas(drawing.width(), drawing.height(), chart.title);
  drawing.draw(canvas);
  return canvas.svg();
}

absl::Status write_chart(const std::string& folder, const std::string& name, const Chart& chart) {
  RAG_RETURN_IF_ERROR(write_report(str_cat(folder, "/", name, ".svg"), svg_of(chart)));
  const Drawing drawing(chart);
  PngCanvas canvas(drawing.width(), drawing.height());
  drawing.draw(canvas);
  RAG_ASSIGN_OR_RETURN(const std::string png, canvas.png());
  return write_report(str_cat(folder, "/", name, ".png"), png);
}

}  // namespace ragcache::loadgen
