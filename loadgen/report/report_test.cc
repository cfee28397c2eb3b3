#include <cairo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "loadgen/report/chart.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/html_page.h"
#include "loadgen/report/markup.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

size_t count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What the ticks below the x axis say.
std::vector<std::string> x_ticks(const std::string& svg) {
  std::vector<std::string> ticks;
  // They alone are in the middle and of the plain size.
  const std::string begin = "font-size=\"12\" text-anchor=\"middle\">";
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    const size_t text = at + begin.size();
    ticks.push_back(svg.substr(text, svg.find('<', text) - text));
  }
  return ticks;
}

TEST(Chart, DrawsALineWithMarksForEachAndVariantsInItsColour) {
  const std::string svg = svg_of({.title = "a < b",
                                  .x_label = "rate & size",
                                  .y_label = "TTFT",
                                  .lines = {{"one", {{0.3, 5}, {0.6, 6}, {0.9, 12}}},
                                            {"one, slow", {{0.3, 6}, {0.9, 12}}, true},
                                            {"two", {{0.3, 1}, {0.9, 2}}}}});
  EXPECT_THAT(svg, StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("<title>a &lt; b</title>"));
  for (const char* text : {"rate &amp; size", "TTFT", "one", "one, slow", "two"}) {
    EXPECT_THAT(svg, HasSubstr(std::string(">") + text + "</text>"));
  }
  EXPECT_EQ(count(svg, "<polygon "), 3 + 2 + 2 + 3u);  // and the legend's
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2u);
  EXPECT_EQ(count(svg, "stroke=\"#0072b2\" stroke-width=\"2\""), 4u);  // both, and their samples
  EXPECT_EQ(count(svg, "stroke=\"#d55e00\" stroke-width=\"2\""), 2u);
  EXPECT_EQ(count(svg, "<polygon fill=\"#ffffff\""), 3u);
}

TEST(Chart, HasRoundTicks) {
  const auto chart = [](std::vector<double> xs, bool log) {
    Chart chart{.log_x = log, .lines = {ChartLine{}}};
    for (const double x : xs) chart.lines[0].points.emplace_back(x, 1);
    return svg_of(chart);
  };
  EXPECT_THAT(x_ticks(chart({0.3, 0.6, 0.9}, false)),
              ElementsAre("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"));
  EXPECT_THAT(x_ticks(chart({16, 2048}, false)), ElementsAre("0", "500", "1000", "1500", "2000"));
  EXPECT_THAT(x_ticks(chart({1.0 / 48, 2.0 / 3}, true)),
              ElementsAre("0.02", "0.05", "0.1", "0.2", "0.5"));
  EXPECT_THAT(x_ticks(chart({1, 1e6}, true)),
              ElementsAre("1", "10", "100", "1000", "10000", "100000", "1000000"));
  EXPECT_THAT(x_ticks(chart({30, 40}, true)), Not(::testing::IsEmpty()));
  EXPECT_THAT(x_ticks(chart({4}, true)), ElementsAre("2", "5"));
  EXPECT_THAT(x_ticks(chart({4}, false)), Not(::testing::IsEmpty()));
}

TEST(Chart, LeavesOutWhatHasNoPlace) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Chart chart{.title = "t", .log_x = true};
  chart.lines = {{"l", {{0, 1}, {1, kInfinity}, {kNan, 1}, {-1, 1}, {2, 3}, {4, 5}}}};
  const std::string svg = svg_of(chart);
  EXPECT_EQ(count(svg, "<polygon "), 2 + 1u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  chart.lines[0].points.resize(4);
  for (const bool log : {true, false}) {
    chart.log_x = log;
    EXPECT_THAT(svg_of(chart), HasSubstr("</svg>"));
  }
  EXPECT_THAT(svg_of({}), HasSubstr("</svg>"));
}

TEST(Chart, IsWrittenAsSvgAndAsAnImageOfTwiceItsSize) {
  const Chart chart{.title = "t", .lines = {{"line", {{0, 1}, {1, 2}}}}};
  const std::string folder = ::testing::TempDir() + "loadgen_report/charts";
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(write_chart(folder, "one", chart).ok());
  std::ifstream file(folder + "/one.svg");
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(svg, svg_of(chart));
  double width = 0, height = 0;
  ASSERT_EQ(std::sscanf(svg.substr(svg.find(" width")).c_str(), " width=\"%lf\" height=\"%lf\"",
                        &width, &height),
            2);

  cairo_surface_t* image = cairo_image_surface_create_from_png((folder + "/one.png").c_str());
  ASSERT_EQ(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
  EXPECT_EQ(cairo_image_surface_get_width(image), 2 * std::ceil(width));
  EXPECT_EQ(cairo_image_surface_get_height(image), 2 * std::ceil(height));
  const int stride = cairo_image_surface_get_stride(image);
  const unsigned char* pixels = cairo_image_surface_get_data(image);
  std::map<uint32_t, int> colours;
  for (int y = 0; y < cairo_image_surface_get_height(image); ++y) {
    for (int x = 0; x < cairo_image_surface_get_width(image); ++x) {
      uint32_t pixel;
      std::memcpy(&pixel, pixels + y * stride + 4 * x, sizeof(pixel));
      ++colours[pixel & 0xffffff];
    }
  }
  EXPECT_GT(colours[0x0072b2], 1000);     // the line
  EXPECT_GT(colours[0x000000], 500);      // axes
  EXPECT_GT(colours[0xffffff], 500'000);  // paper
  cairo_surface_destroy(image);
}

TEST(Markup, IsEscaped) {
  EXPECT_EQ(escape_markup("<a href=\"x\">'&amp;'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_markup("µs ÷"), "µs ÷");
}

TEST(TextTable, AlignsNamesToTheLeftAndFiguresToTheRight) {
  EXPECT_EQ(text_table({{"mode", "ms", "÷ none"}, {{"ragcache", "1.25", "4.1"}, {"µ", "10", ""}}}),
            "mode        ms  ÷ none\n"
            "ragcache  1.25     4.1\n"
            "µ           10\n");
  EXPECT_EQ(fixed(1.0 / 3, 4), "0.3333");
}

TEST(HtmlPage, IsOneFileWithEverythingEscaped) {
  HtmlPage page("<t>");
  page.heading("a & b");
  page.paragraph("1 < 2");
  page.table({{"mode", "<ms>"}, {{"none", "3"}, {"ours", "1"}}});
  page.chart({.title = "drawing", .lines = {{"<line>", {{1, 2}}}}});
  page.environment({.commit = "abc", .dirty = true, .command = "x --data '<d>'"});
  const std::string html = page.html();
  EXPECT_THAT(html, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("<title>&lt;t&gt;</title>"));
  EXPECT_THAT(html, HasSubstr("<h1>&lt;t&gt;</h1>\n<h2>a &amp; b</h2>\n<p>1 &lt; 2</p>\n<table>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\">&lt;ms&gt;</th>"));
  EXPECT_THAT(html, HasSubstr("<tr>\n<th scope=\"row\">ours</th>\n<td>1</td>\n</tr>"));
  EXPECT_EQ(count(html, "<tr>"), 3u);
  EXPECT_THAT(html, HasSubstr(">&lt;line&gt;</text>"));
  EXPECT_THAT(html, HasSubstr("<dt>commit</dt>\n<dd>abc, with changes</dd>"));
  EXPECT_THAT(html, HasSubstr("--data &#39;&lt;d&gt;&#39;"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_EQ(count(html, "http"), 1u);  // SVG's name
}

TEST(Environment, TellsBuildMachineAndCommand) {
  const Environment here = environment();
  EXPECT_THAT(here.command, HasSubstr("report_test"));
  EXPECT_THAT(here.time, ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_GE(here.cores, 1);
  EXPECT_GT(here.memory_bytes, 64u << 20);
  EXPECT_NE(here.compiler, "");
  EXPECT_TRUE(here.commit == "unknown" || here.commit.size() == 40) << here.commit;
  const nlohmann::json json = to_json(here);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("build", "command", "commit", "compiler", "cores", "cpu", "dirty",
                                "kernel", "memory_bytes", "time"));
  EXPECT_EQ(json["cores"], here.cores);
  EXPECT_THAT(to_text(here), HasSubstr("\ntime: " + here.time + "\ncommand: "));
}

TEST(Environment, QuotesTheCommandAndKeepsKeysToItself) {
  EXPECT_EQ(command_line({"run", "--data", "my data", "--note=it's", "", "--api-key", "secret",
                          "--json", "-", "--api-key=secret"}),
            "run --data 'my data' '--note=it'\\''s' '' --api-key ... --json - --api-key=...");
}

}  // namespace
}  // namespace ragcache::loadgen
