// Tables as text.
#include "table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "files.h"

namespace lab {
namespace {

constexpr size_t kColumns = 100;  // of a terminal

struct Column {
  size_t index;
  bool left;
  std::string above, below;  // its head
  size_t width;
};

std::string padded(const std::string& text, const Column& column) {
  const std::string space(column.width - std::min(column.width, text.size()), ' ');
  return column.left ? text + space : space + text;
}

void append_line(std::string& to, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  to += line + "\n";
}

}  // namespace

std::string human_time(double us) {
  if (!std::isfinite(us)) return "-";
  const char* units[] = {"ns", "us", "ms", "s"};
  double value = us * 1e3;
  int unit = 0;
  for (; value >= 999.5 && unit < 3; ++unit) value /= 1e3;
  return format("%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
}

std::string times(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  return format("%.*fx", ratio < 9.995 ? 2 : ratio < 99.95 ? 1 : 0, ratio);
}

TextTable::TextTable(std::vector<std::string> heads) : heads_(std::move(heads)) {}

void TextTable::add(std::vector<std::string> cells) {
  if (cells.size() != heads_.size())
    throw std::invalid_argument("a line of " + std::to_string(cells.size()) +
                                " cells, the table has " + std::to_string(heads_.size()) +
                                " columns");
  lines_.push_back(std::move(cells));
}

bool TextTable::used(size_t column) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& cells) {
    return cells[column] != "" && cells[column] != "-";
  });
}

std::string TextTable::text() const {
  std::vector<Column> columns;
  for (size_t i = 0; i < heads_.size(); ++i) {
    if (i > 0 && !used(i)) continue;
    const bool marked = heads_[i].rfind("<", 0) == 0;
    const std::string head = heads_[i].substr(marked ? 1 : 0);
    const size_t end = head.find('\n');
    Column column{i, marked || i == 0, end == head.npos ? "" : head.substr(0, end),
                  end == head.npos ? head : head.substr(end + 1), 0};
    column.width = std::max(column.above.size(), column.below.size());
    for (const auto& cells : lines_) column.width = std::max(column.width, cells[i].size());
    columns.push_back(column);
  }
  const size_t wide =
      std::accumulate(columns.begin(), columns.end(), 2 * (columns.size() - 1),
                      [](size_t sum, const Column& column) { return sum + column.width; });
  const std::string gap(wide <= kColumns ? 2 : 1, ' ');

  std::string above, below, text;
  for (const Column& column : columns) {
    const std::string space = below.empty() ? "" : gap;
    above += space + padded(column.above, column);
    below += space + padded(column.below, column);
  }
  if (above.find_first_not_of(' ') != above.npos) append_line(text, above);
  append_line(text, below);
  for (const auto& cells : lines_) {
    std::string line;
    for (const Column& column : columns)
      line += (line.empty() ? "" : gap) + padded(cells[column.index], column);
    append_line(text, line);
  }
  return text;
}

}  // namespace lab
