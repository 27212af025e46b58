// A table of text: columns as wide as what stands in them.
#pragma once

#include <string>
#include <vector>

namespace lab {

// "12.3 us" and "3.29x", three digits; "-" for what is no number.
std::string human_time(double us);
std::string times(double ratio);

class TextTable {
 public:
  // A column's head, of one line or two ("moved/\nneeded"). The first column and those whose head
  // begins with '<' are flush left, the others flush right.
  explicit TextTable(std::vector<std::string> heads);

  // A cell for each column.
  void add(std::vector<std::string> cells);

  // Whether a line has more than "" and "-" in that column.
  bool used(size_t column) const;
  // Leaves out columns that are not used. Two spaces between columns, or
  // one where lines would be longer than 100 characters.
  std::string text() const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace lab
