// Chapter 20: a photo repainted by a network of sixteen of chapter 8's convolutions, layer after layer,
// each compared with the CPU reference of the same input.
#include <cmath>

#include "../../common/lab/files.h"
#include "../../common/lab/steps.h"
#include "../08_fused_conv_norm/kernels/instances.cuh"  // its steps 1 and 2
#include "host/compare.h"
#include "host/layer.cuh"
#include "host/report.h"
#include "kernel.cuh"

using namespace lab;

namespace {

constexpr const char* kChapter = "20_style_network";

const std::vector<LayerStep> kSteps = {{"fused", fused_conv_norm::fused},
                                       {"two passes", fused_conv_norm::two_passes, true},
                                       {"three passes", fused_conv_norm::three_passes, true}};

}  // namespace

int main(int argc, char** argv) {
  return guarded_main(kChapter, [&] {
    // Flags, the network and the photo.
    StyleOptions options =
        style_options(argc, argv, "Chapter 20: a style-transfer network on a photo.");
    const LayerStep step = chosen_steps(options.step, kSteps).front();
    const std::vector<StyleLayer> network = chosen_network(options);
    const Image photo = style_photo(options);
    const std::vector<StyleStage> stages = style_stages(network, photo);
    const Device device = open_device();
    complete_for(device, options,
                 "--profile shows what the virtual GPU takes (make DEVICE=vgpu); on this GPU: "
                 "nsys profile ./run");
    const SharedArrays sizes = arrays_in_memory(device, network, stages, photo);
    StyleReport report(kChapter, options, device, step.name, photo, stages);

    // The photo's pixels become three planes: x of the first layer.
    DeviceArray<unsigned char> pixels(photo.rgb, "pixels");
    DeviceArray<float> x(sizes.elements, "x"), y(sizes.elements, "y");
    DeviceArray<float> between(sizes.between, "between");
    style_network::to_planes(pixels.data(), x.data(), photo.height, photo.width, nullptr);
    check(cudaDeviceSynchronize());
    std::vector<float> x_host = x.download(0, photo.rgb.size());
    require_planes(x_host, photo);

    // Each layer, or both of a residual block: launched and timed, then compared. y becomes the next x.
    for (const StyleStage& stage : stages) {
      const ConvNormShape& shape = stage.shape;
      const DeviceLayer first(network[stage.first]), second(network[stage.last()]);
      const auto launch = [&] {
        const ConvNormParameters p = first.parameters();
        if (stage.residual)
          style_network::residual_block(step.function, x.data(), p, second.parameters(),
                                        between.data(), y.data(), shape, nullptr);
        else
          step.function(x.data(), p.weight, nullptr, p.gamma, p.beta, nullptr, y.data(), shape,
                        nullptr);
      };
      y.fill_nan();  // an element that is not written is wrong
      between.fill_nan();
      const std::string text = stage_text(stage);
      const double known_us = report.predicted_us(text);
      report.begin(stage.name, text);
      const LayerTime time = time_layer(device, options, known_us, launch);
      std::vector<Comparison> right;
      if (!options.predict) {
        std::vector<float> y_host = y.download(0, shape.y_elements()), middle;
        if (stage.residual) middle = between.download(0, shape.y_elements());
        right = compare_stage(network, stage, x_host, middle, y_host);
        x_host = std::move(y_host);
      }
      report.end(step.path(shape), time, right);  // a launch may have been refused
      std::swap(x, y);
    }

    // The last planes become pixels again.
    Image picture = photo;
    const ConvNormShape& last = stages.back().shape;
    pixels.fill_nan();
    report.begin("pixels", format("%dx%d, clamp(150 tanh + 127.5)", photo.height, photo.width));
    const LayerTime time = time_layer(device, options, std::nan(""), [&] {
      style_network::to_pixels(x.data(), pixels.data(), last.out_height(), last.out_width(),
                               photo.height, photo.width, nullptr);
    });
    picture.rgb = pixels.download();
    std::vector<Comparison> right;
    if (!options.predict) right = {compare_pixels(x_host, last, picture)};
    report.end("", time, right);
    return report.finish(picture);
  });
}
