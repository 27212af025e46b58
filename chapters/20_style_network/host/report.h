// What a run of chapter 20 prints and writes: a line for each layer, as soon as it is done.
#pragma once

#include <functional>

#include "../../../common/lab.cuh"
#include "options.h"

namespace lab {

struct LayerTime {
  Timing timing;
  double predicted_us = std::numeric_limits<double>::quiet_NaN();  // its launches' sum; NaN: none
};
// Launches as often as the options say. known_us: the predicted time of a layer of the same shape, or
// NaN; where there is one, the layer is not predicted again, and with --predict not launched.
LayerTime time_layer(const Device& device, const StyleOptions& options, double known_us,
                     const std::function<void()>& launch);

// "2 x 128 to 128, 56x56, 3x3"
std::string stage_text(const StyleStage& stage);

class StyleReport {
 public:
  // Prints what runs on which device, and the table's head.
  StyleReport(const char* chapter, const StyleOptions& options, const Device& device,
              const std::string& step, const Image& photo, const std::vector<StyleStage>& stages);

  // The predicted time of a line of that shape; NaN where there is none.
  double predicted_us(const std::string& shape) const;
  // A line's beginning, so that what runs is on the screen while it runs, and the rest of it: how
  // the layer was computed, how long that took, what was compared (nothing with --predict).
  void begin(const std::string& name, const std::string& shape);
  void end(const std::string& path, const LayerTime& time, std::vector<Comparison> comparisons);

  // Prints sums and legends, writes the picture and --json. Gives the exit code.
  ExitCode finish(const Image& picture) const;

 private:
  struct Line {
    std::string name, shape, path;
    LayerTime time;
    std::vector<Comparison> comparisons;
    bool pass() const;
  };
  void print_head() const;
  void print_rest(const Line& line) const;
  void print_sums() const;
  void write_json(const Image& picture, bool pass) const;

  const char* chapter_;
  StyleOptions options_;
  Device device_;
  std::string step_;
  ConvNormShape last_;  // the network's last layer
  std::vector<Line> lines_;
};

}  // namespace lab
