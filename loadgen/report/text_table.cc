#include "loadgen/report/text_table.h"

#include <algorithm>
#include <cstdio>

#include "common/check.h"

namespace ragcache::loadgen {
namespace {

constexpr size_t kGap = 2;  // between columns

// In characters: UTF-8 has one byte of each that continues no other.
size_t width_of(const std::string& cell) {
  return static_cast<size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string text_table(const Table& table) {
  std::vector<size_t> widths;
  const auto widen = [&widths](const std::vector<std::string>& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  };
  widen(table.header);
  for (const auto& row : table.rows) {
    RAG_CHECK(row.size() == table.header.size());
    widen(row);
  }

  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      if (i == 0) {
        text += row[i] + padding;
      } else {
        text += std::string(kGap, ' ') + padding + row[i];
      }
    }
    text.resize(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  add(table.header);
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string fixed(std::optional<double> value, int decimals) {
  return value.has_value() ? fixed(*value, decimals) : "–";
}

}  // namespace ragcache::loadgen
