#include "loadgen/report/svg_canvas.h"

#include <cmath>
#include <cstdio>

#include "common/strings.h"
#include "loadgen/report/markup.h"

namespace ragcache::loadgen {
namespace {

// A tenth of a pixel is enough.
double rounded(double value) { return std::round(value * 10) / 10; }

std::string to_text(Colour colour) {
  char text[8];
  std::snprintf(text, sizeof(text), "#%02x%02x%02x", colour.red, colour.green, colour.blue);
  return text;
}

std::string to_text(std::span<const Point> points) {
  std::string text;
  for (const Point& point : points) {
    if (!text.empty()) text += ' ';
    text += str_cat(rounded(point.x), ",", rounded(point.y));
  }
  return text;
}

std::string to_text(const Stroke& stroke) {
  return str_cat(" stroke=\"", to_text(stroke.colour), "\" stroke-width=\"", stroke.width, "\"",
                 stroke.dashed ? " stroke-dasharray=\"6 4\"" : "");
}

}  // namespace

SvgCanvas::SvgCanvas(double width, double height, const std::string& title)
    : svg_(str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", rounded(width),
                   "\" height=\"", rounded(height), "\" viewBox=\"0 0 ", rounded(width), " ",
                   rounded(height), "\" role=\"img\" font-family=\"sans-serif\">\n<title>",
                   escape_markup(title),
                   "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n")) {}

void SvgCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  svg_ +=
      str_cat("<polyline fill=\"none\"", to_text(stroke), " points=\"", to_text(points), "\"/>\n");
}

void SvgCanvas::polygon(std::span<const Point> points, const Stroke& outline, Colour fill) {
  svg_ += str_cat("<polygon fill=\"", to_text(fill), "\"", to_text(outline), " points=\"",
                  to_text(points), "\"/>\n");
}

void SvgCanvas::text(Point at, const std::string& text, const TextStyle& style) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  const double x = rounded(at.x), y = rounded(at.y);
  svg_ += str_cat("<text x=\"", x, "\" y=\"", y, "\" font-size=\"", style.size, "\" text-anchor=\"",
                  kAnchors[static_cast<int>(style.anchor)], "\"");
  if (style.bold) svg_ += " font-weight=\"bold\"";
  if (style.upwards) svg_ += str_cat(" transform=\"rotate(-90 ", x, " ", y, ")\"");
  svg_ += str_cat(">", escape_markup(text), "</text>\n");
}

}  // namespace ragcache::loadgen
