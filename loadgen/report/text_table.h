#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ragcache::loadgen {

// Cells of text, as many in each row as in the header. The first column names its row; the others
// are its figures.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

// The table in columns for a terminal: names to the left, figures to the right.
std::string text_table(const Table& table);

// A number with so many decimals; a dash for none.
std::string fixed(double value, int decimals);
std::string fixed(std::optional<double> value, int decimals);

}  // namespace ragcache::loadgen
