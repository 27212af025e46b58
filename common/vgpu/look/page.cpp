// The page as it was put together when the library was built (common/make/vgpu.mk), inside the library.
#include <string>

asm(R"(
  .section .rodata
  .globl vgpu_look_page, vgpu_look_page_end
  .hidden vgpu_look_page, vgpu_look_page_end
vgpu_look_page:
  .incbin "look_page.html"
vgpu_look_page_end:
  .byte 0
  .previous
)");

extern "C" const char vgpu_look_page[], vgpu_look_page_end[];

namespace vgpu::look {

std::string page_template() { return {vgpu_look_page, vgpu_look_page_end}; }

}  // namespace vgpu::look
