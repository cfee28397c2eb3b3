#include "loadgen/report/png_canvas.h"

#include <cairo.h>

#include <cmath>
#include <numbers>

#include "common/strings.h"

namespace ragcache::loadgen {

struct PngCanvas::Cairo {
  Cairo(int width, int height)
      : surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height)),
        context(cairo_create(surface)) {}
  Cairo(const Cairo&) = delete;
  Cairo& operator=(const Cairo&) = delete;
  ~Cairo() {
    cairo_destroy(context);
    cairo_surface_destroy(surface);
  }

  void set(Colour colour) {
    cairo_set_source_rgb(context, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0);
  }
  void set(const Stroke& stroke) {
    constexpr double kDashes[] = {6, 4};
    set(stroke.colour);
    cairo_set_line_width(context, stroke.width);
    cairo_set_dash(context, kDashes, stroke.dashed ? 2 : 0, 0);
  }
  void path(std::span<const Point> points) {
    for (const Point& point : points) cairo_line_to(context, point.x, point.y);
  }

  cairo_surface_t* surface;
  cairo_t* context;
};

PngCanvas::PngCanvas(double width, double height)
    : cairo_(std::make_unique<Cairo>(static_cast<int>(std::ceil(width)) * kScale,
                                     static_cast<int>(std::ceil(height)) * kScale)) {
  cairo_set_source_rgb(cairo_->context, 1, 1, 1);
  cairo_paint(cairo_->context);
  cairo_scale(cairo_->context, kScale, kScale);
}

PngCanvas::~PngCanvas() = default;

void PngCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  cairo_->path(points);
  cairo_->set(stroke);
  cairo_stroke(cairo_->context);
}

void PngCanvas::polygon(std::span<const Point> points, const Stroke& outline, Colour fill) {
  cairo_->path(points);
  cairo_close_path(cairo_->context);
  cairo_->set(fill);
  cairo_fill_preserve(cairo_->context);
  cairo_->set(outline);
  cairo_stroke(cairo_->context);
}

void PngCanvas::text(Point at, const std::string& text, const TextStyle& style) {
  cairo_t* context = cairo_->context;
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context, style.size);
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  constexpr double kBefore[] = {0, 0.5, 1};  // of the text, by anchor
  cairo_save(context);
  cairo_translate(context, at.x, at.y);
  if (style.upwards) cairo_rotate(context, -std::numbers::pi / 2);
  cairo_move_to(context, -kBefore[static_cast<int>(style.anchor)] * extents.x_advance, 0);
  cairo_set_source_rgb(context, 0, 0, 0);
  cairo_show_text(context, text.c_str());
  cairo_new_path(context);
  cairo_restore(context);
}

absl::StatusOr<std::string> PngCanvas::png() const {
  std::string png;
  cairo_status_t status = cairo_status(cairo_->context);
  if (status == CAIRO_STATUS_SUCCESS) {
    const auto append = [](void* to, const unsigned char* data, unsigned int size) {
      static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), size);
      return CAIRO_STATUS_SUCCESS;
    };
    status = cairo_surface_write_to_png_stream(cairo_->surface, append, &png);
  }
  if (status != CAIRO_STATUS_SUCCESS) {
    return absl::InternalError(str_cat("a PNG is not drawn: ", cairo_status_to_string(status)));
  }
  return png;
}

}  // namespace ragcache::loadgen
