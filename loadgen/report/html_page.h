#pragma once

#include <string>

#include "loadgen/report/chart.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {

// A report to look at: one file that fetches nothing and runs nothing. What is added stands in that
// order; texts are plain ones.
class HtmlPage {
 public:
  explicit HtmlPage(const std::string& title);

  void heading(const std::string& text);
  void paragraph(const std::string& text);
  void table(const Table& table);
  void chart(const Chart& chart);
  void environment(const Environment& environment);

  // The whole document.
  std::string html() const { return html_ + "</main>\n</body>\n</html>\n"; }

 private:
  void element(const char* tag, const std::string& text, const char* attributes = "");

  std::string html_;
};

}  // namespace ragcache::loadgen
