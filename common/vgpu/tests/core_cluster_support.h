// What the tests of clusters share: PTX for two blocks that reach each other, and what messages lack.
#pragma once
#include "core_support.h"

namespace vgpu::test {

inline const std::string kShared =
    ".shared .align 16 .b64 object; .shared .align 16 .b8 data[1024];\n";
inline const std::string kSync = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
// %r90: the rank, %r91: the peer's (rank xor 1), %r92 and %r93: data and object of the peer.
inline const std::string kPeer = R"(
mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1;
mapa.shared::cluster.u32 %r92, data, %r91; mapa.shared::cluster.u32 %r93, object, %r91;
)";

struct Clusters : Gpu {
  explicit Clusters(Dim3 size, MachineOptions options = {.threads = 1}) : Gpu(options) {
    cluster = size;
  }
  std::string message(const std::string& body, Dim3 block, Dim3 grid,
                      const std::string& before = kShared) {
    const auto out = array<std::uint32_t>(1024);
    return launch(kernel(body, before), {out.address(), out.address()}, block, grid).fault.message;
  }
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
// What is wrong with a message: "" when it holds the part, else the message.
inline std::string lacks(const std::string& text, const std::string& part) {
  return has(text, part) ? "" : text + " <- without: " + part;
}

}  // namespace vgpu::test
