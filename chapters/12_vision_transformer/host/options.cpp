// Flags of chapter 12.
#include "options.h"

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "weights.h"

namespace vision_transformer {
namespace {

using lab::UsageError;

constexpr int kMaxBatch = 4096;

template <class Function>
std::string names_of(const std::vector<Choice<Function>>& choices) {
  std::string names;
  for (size_t i = 0; i < choices.size(); ++i)
    names += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + std::string(choices[i].name);
  return names;
}

// A flag that chooses one of those.
template <class Function>
void choice(lab::Flags& flags, const char* flag, Choice<Function>& chosen,
            const std::vector<Choice<Function>>& choices, const std::string& help) {
  flags.option(
      flag,
      [&chosen, &choices, flag](const std::string& text) {
        for (const Choice<Function>& one : choices)
          if (text == one.name) {
            chosen = one;
            return;
          }
        throw UsageError(std::string(flag) + " '" + text + "': must be " + names_of(choices));
      },
      "STEP", help + "\n(" + names_of(choices) + "; default " + chosen.name + ")");
}

// What the net's flags say together.
void check_net(const lab::Flags& flags, NetOptions& options) {
  flags.refuse({"--tokens", "--width", "--heads", "--no-bias", "--sizes"},
               "belongs to the layer of --projection");
  if (options.components.qkv.function.inside)
    flags.refuse({"--attention"},
                 "does not go with --qkv inside, whose kernel is its own attention");
  flags.refuse_with_predict(options);
  if (options.predict) flags.refuse({"--graph", "--block"}, "does not go with --predict");
  if (!options.weights.empty())
    flags.refuse({"--seed"}, "is of random weights: not with --weights");
  if (options.image.empty()) options.image = lab::repository_path("data/images/chelsea.png");
  lab::require_files(options);
  for (const std::string& written : {options.out, options.output, options.json, options.csv})
    for (const std::string& read : {options.weights, options.labels})
      if (!written.empty() && !read.empty() && lab::same_file(written, read))
        throw UsageError("an input and an output name the same file " + written);
}

// What the flags of the layer say together.
void check_layer(const lab::Flags& flags, NetOptions& options) {
  flags.refuse({"--weights", "--model", "--image", "--labels", "--size", "--embed", "--norm",
                "--mlp", "--qkv", "--attention", "--graph", "--block", "--out"},
               "belongs to the net: not with --projection");
  options.out.clear();
  if (options.sizes)
    flags.refuse({"--tokens", "--width", "--heads", "--output"}, "does not go with --sizes");
  if (options.predict)
    flags.refuse({"--output", "--warmup", "--iterations"}, "does not go with --predict");
  if (options.width % options.heads != 0 || options.width / options.heads % 8 != 0)
    throw UsageError(lab::format("--width '%d': must be a multiple of 8 times the %d heads",
                                 options.width, options.heads));
  lab::require_files(options);
}

}  // namespace

NetOptions net_options(int argc, char** argv, const char* about) {
  NetOptions options;
  options.out = "attention.png";
  lab::Flags flags(
      about,
      "Weights are a safetensors file with timm's names; README.md in the chapter's folder says\n"
      "where to get one. Names of the classes are read from --labels, or from\n"
      "imagenet_synset_words.txt beside the weights. --projection: one layer of attention alone, "
      "in\n"
      "fp32 on random numbers, with q, k and v computed inside its kernel and apart.");
  flags.text("--weights", options.weights, "FILE", "trained net, safetensors (F16 or F32)");
  flags.option(
      "--model",
      [&](const std::string& text) {
        model_shape(text);
        options.model = text;
      },
      "NAME", "tiny, small or base (as the weights are; else tiny)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--labels", options.labels, "FILE", "names of the classes, one a line");
  flags.option(
      "--size",
      [&](const std::string& text) {
        lab::require_one_of("--size", text, {"224", "384", "512"});
        options.size = lab::parse_number("--size", text, 224, 512);
      },
      "PIXELS", "side of the squared photo: 224, 384 or 512 (224)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N",
               "images at a time: the photo, and itself shifted; sequences (1)");
  choice(flags, "--embed", options.components.embed, embed_choices(),
         "step of the patch embedding");
  choice(flags, "--norm", options.components.norm, norm_choices(), "step of LayerNorm");
  choice(flags, "--mlp", options.components.linear, linear_choices(),
         "step of all products with weights");
  choice(flags, "--qkv", options.components.qkv, qkv_choices(),
         "how q, k and v reach attention: split after the product, stored by heads\n"
         "by the product, or computed inside attention's own kernel");
  choice(flags, "--attention", options.components.attention, attention_choices(),
         "step of attention");
  flags.given("--graph", options.graph, "also replays the net from a CUDA graph and compares bits");
  flags.number("--block", options.block, 0, 1000, "N", "block whose attention is drawn (the last)");
  flags.text("--out", options.out, "FILE", "the class token's attention, .png or .jpg");
  flags.given("--projection", options.projection,
              "q, k and v inside attention's kernel beside apart, of one layer in fp32:");
  flags.number("--tokens", options.tokens, 1, 4096, "N", "its tokens of a sequence (256)");
  flags.number("--width", options.width, 8, 2048, "N", "its numbers of a token (256)");
  flags.number("--heads", options.heads, 1, 64, "N", "its heads of width / heads numbers (4)");
  flags.given("--no-bias", options.no_bias, "its products without a bias");
  flags.given("--sizes", options.sizes,
              "64 to 512 tokens, widths 128 to 512 in heads of 64, one\nafter the other");
  flags.text("--output", options.output, "FILE",
             "logits [batch, classes], or the layer's result [batch, tokens, width],\nas 'out', "
             "safetensors");
  flags.run_flags(options, "of random weights, and of the layer's x (1)");
  flags.parse(argc, argv);
  if (options.batch == 0) options.batch = 1;
  options.projection ? check_layer(flags, options) : check_net(flags, options);
  return options;
}

}  // namespace vision_transformer
