#include "loadgen/report/html_page.h"

#include "common/strings.h"
#include "loadgen/report/markup.h"

namespace ragcache::loadgen {
namespace {

constexpr const char* kStyle = R"(
body { font: 16px/1.5 sans-serif; color: #222; background: #fff; margin: 0 }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left }
thead th { border-bottom: 2px solid #222 } tbody th { font-weight: normal }
svg { max-width: 100%; height: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; font-size: .9rem }
dt { color: #555 } dd { margin: 0; overflow-wrap: anywhere }
)";

}  // namespace

HtmlPage::HtmlPage(const std::string& title)
    : html_(str_cat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<title>",
                    escape_markup(title), "</title>\n<style>", kStyle,
                    "</style>\n</head>\n<body>\n<main>\n")) {
  element("h1", title);
}

void HtmlPage::element(const char* tag, const std::string& text, const char* attributes) {
  html_ += str_cat("<", tag, attributes, ">", escape_markup(text), "</", tag, ">\n");
}

void HtmlPage::heading(const std::string& text) { element("h2", text); }

void HtmlPage::paragraph(const std::string& text) { element("p", text); }

void HtmlPage::table(const Table& table) {
  html_ += "<table>\n<thead><tr>\n";
  for (const std::string& cell : table.header) element("th", cell, " scope=\"col\"");
  html_ += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html_ += "<tr>\n";
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == 0) {
        element("th", row[i], " scope=\"row\"");
      } else {
        element("td", row[i]);
      }
    }
    html_ += "</tr>\n";
  }
  html_ += "</tbody>\n</table>\n";
}

void HtmlPage::chart(const Chart& chart) {
  html_ += str_cat("<figure>\n", svg_of(chart), "</figure>\n");
}

void HtmlPage::environment(const Environment& environment) {
  html_ += "<dl>\n";
  for (const auto& [name, value] : to_rows(environment)) {
    element("dt", name);
    element("dd", value);
  }
  html_ += "</dl>\n";
}

}  // namespace ragcache::loadgen
