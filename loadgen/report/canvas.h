#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ragcache::loadgen {

struct Point {  // pixels from the top left corner
  double x;
  double y;
};

struct Colour {
  uint8_t red;
  uint8_t green;
  uint8_t blue;
};

struct Stroke {
  Colour colour;
  double width = 1;
  bool dashed = false;
};

struct TextStyle {
  enum class Anchor { kStart, kMiddle, kEnd };
  Anchor anchor = Anchor::kStart;
  double size = 12;
  bool bold = false;
  bool upwards = false;  // turned to the left
};

// What a chart is drawn on. White at first; what comes later covers what is there.
class Canvas {
 public:
  virtual ~Canvas() = default;

  virtual void polyline(std::span<const Point> points, const Stroke& stroke) = 0;
  virtual void polygon(std::span<const Point> points, const Stroke& outline, Colour fill) = 0;
  // `at` is where the text is anchored, on its base line.
  virtual void text(Point at, const std::string& text, const TextStyle& style) = 0;
};

}  // namespace ragcache::loadgen
