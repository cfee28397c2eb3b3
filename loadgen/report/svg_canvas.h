#pragma once

#include <string>

#include "loadgen/report/canvas.h"

namespace ragcache::loadgen {

// Draws an SVG document. Texts stay texts, for readers who search or listen.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(double width, double height, const std::string& title);

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, const Stroke& outline, Colour fill) override;
  void text(Point at, const std::string& text, const TextStyle& style) override;

  std::string svg() const { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

}  // namespace ragcache::loadgen
