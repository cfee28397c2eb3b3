#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "loadgen/report/canvas.h"

namespace ragcache::loadgen {

// Draws an image, each pixel of the canvas as kScale × kScale, with cairo.
class PngCanvas final : public Canvas {
 public:
  static constexpr int kScale = 2;

  PngCanvas(double width, double height);
  ~PngCanvas() override;

  void polyline(std::span<const Point> points, const Stroke& stroke) override;
  void polygon(std::span<const Point> points, const Stroke& outline, Colour fill) override;
  void text(Point at, const std::string& text, const TextStyle& style) override;

  // INTERNAL if something could not be drawn, for want of memory or of any font.
  absl::StatusOr<std::string> png() const;

 private:
  struct Cairo;
  std::unique_ptr<Cairo> cairo_;
};

}  // namespace ragcache::loadgen
