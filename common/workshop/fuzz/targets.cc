// The readers under test, their seeds, and kernels that are run.
#include <elf.h>
#include <lz4.h>
#include <zstd.h>

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "../../vgpu/runtime/cubin.h"
#include "../../vgpu/runtime/fatbin.h"
#include "../../vgpu/runtime/watched_machine.h"
#include "fuzz.h"
#include "lab.cuh"
#include "lab/errors.h"
#include "lab/images.h"
#include "lab/tensors.h"

namespace vgpu::fuzz {

Counts counts;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof value) bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// ---- fat binaries and cubins ---------------------------------------------------------------------

constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000, kSpecific = 0x100000;

std::string entry(int kind, std::uint64_t flags, const std::string& content) {
  std::string stored = content;
  if (flags & kLz4) {
    stored.resize(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(content.size()))));
    stored.resize(static_cast<std::size_t>(LZ4_compress_default(content.data(), stored.data(),
                                                                static_cast<int>(content.size()),
                                                                static_cast<int>(stored.size()))));
  } else if (flags & kZstd) {
    stored.resize(ZSTD_compressBound(content.size()));
    stored.resize(ZSTD_compress(stored.data(), stored.size(), content.data(), content.size(), 3));
  }
  std::string bytes(0x50, '\0');
  const std::uint64_t padded = (stored.size() + 7) / 8 * 8;
  put<std::uint16_t>(bytes, 0x00, static_cast<std::uint16_t>(kind));
  put<std::uint32_t>(bytes, 0x04, 0x50);
  put<std::uint64_t>(bytes, 0x08, padded);
  put<std::uint32_t>(bytes, 0x10,
                     flags & (kLz4 | kZstd) ? static_cast<std::uint32_t>(stored.size()) : 0);
  put<std::uint32_t>(bytes, 0x1c, 90);
  put<std::uint64_t>(bytes, 0x28, flags);
  put<std::uint64_t>(bytes, 0x38, flags & (kLz4 | kZstd) ? content.size() : 0);
  bytes += stored;
  bytes.resize(0x50 + padded);
  return bytes;
}
std::string container(const std::vector<std::string>& entries) {
  const std::string all = std::accumulate(entries.begin(), entries.end(), std::string());
  std::string bytes(16, '\0');
  put<std::uint32_t>(bytes, 0, runtime::kContainerMagic);
  put<std::uint16_t>(bytes, 4, 1);
  put<std::uint16_t>(bytes, 6, 16);
  put<std::uint64_t>(bytes, 8, all.size());
  return bytes + all;
}

// An ELF file with what read_cubin looks at: sections, symbols, .nv.info.
std::string small_cubin() {
  const std::string kernel = "_Z1kPf";
  std::string names(1, '\0');
  for (const std::string& name :
       {std::string(".nv.info"), ".nv.info." + kernel, ".nv.shared." + kernel,
        std::string(".symtab"), std::string(".strtab"), kernel})
    names += name + '\0';
  std::string bytes(sizeof(Elf64_Ehdr), '\0'), info, symbols(2 * sizeof(Elf64_Sym), '\0');
  for (const int attribute : {0x2f, 0x11, 0x12}) {
    info += {4, static_cast<char>(attribute), 8, 0, 1, 0, 0, 0, 32, 0, 0, 0};
  }
  Elf64_Sym symbol{};
  symbol.st_name = static_cast<Elf64_Word>(names.find(kernel + '\0', names.find(".strtab")));
  std::memcpy(symbols.data() + sizeof symbol, &symbol, sizeof symbol);
  std::vector<Elf64_Shdr> sections(1);
  const auto add = [&](const std::string& name, unsigned type, const std::string& content,
                       unsigned link) {
    Elf64_Shdr s{};
    s.sh_name = static_cast<Elf64_Word>(names.find(name));
    s.sh_type = type, s.sh_offset = bytes.size(), s.sh_size = content.size(), s.sh_link = link;
    bytes += content;
    sections.push_back(s);
  };
  add(".strtab", SHT_STRTAB, names, 0);
  add(".symtab", SHT_SYMTAB, symbols, 1);
  add(".nv.info", SHT_PROGBITS, info, 2);
  add(".nv.info._Z1kPf", SHT_PROGBITS, info, 2);
  add(".nv.shared._Z1kPf", SHT_PROGBITS, std::string(1280, '\0'), 0);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_flags = 90 << 8;
  header.e_shoff = bytes.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = 1;
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.append(reinterpret_cast<const char*>(sections.data()),
               sections.size() * sizeof(Elf64_Shdr));
  return bytes;
}

void run_cubin(const std::string& input) { runtime::read_cubin(bytes_of(input)); }

void run_fatbin(const std::string& input) {
  try {
    const auto images = runtime::read_container(bytes_of(input));
    for (const runtime::Image& image : images) {
      try {
        if (image.uncompressed > (64u << 20))
          continue;  // a claim of up to 1 GiB is allowed, and slow
        if (image.kind == runtime::Image::Kind::elf)
          runtime::read_cubin(runtime::image_bytes(image));
        else
          runtime::image_text(image);
      } catch (const runtime::FatbinError&) {
      }
    }
    runtime::choose_ptx(images, 9, 0);
    runtime::choose_cubin(images, 9, 0);
    runtime::explain_no_ptx(images, 9, 0);
  } catch (const runtime::FatbinError&) {
  }
}

// ---- tensor files --------------------------------------------------------------------------------

std::string safetensors(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  put<std::uint64_t>(bytes, 0, header.size());
  return bytes + header + std::string(data, '\1');
}
std::string npy(int version, const std::string& dtype, const std::string& shape, std::size_t data) {
  std::string header =
      "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), 0};
  if (version == 1)
    put<std::uint16_t>(bytes, 8, static_cast<std::uint16_t>(header.size()));
  else
    put<std::uint32_t>(bytes, 8, static_cast<std::uint32_t>(header.size()));
  return bytes + header + std::string(data, '\2');
}

std::string scratch() { return "/dev/shm/fuzz-" + std::to_string(getpid()); }
template <class F>
void with_file(const std::string& input, F read) {
  std::ofstream(scratch(), std::ios::binary) << input;
  try {
    read();
  } catch (const lab::UsageError&) {
  }
  std::remove(scratch().c_str());
}
void run_safetensors(const std::string& input) {
  // Half of the headers get their length right again, to come further than its check.
  std::string fixed = input;
  const std::size_t end = input.rfind('}');
  if (input.size() % 2 && end != input.npos && end > 8) put<std::uint64_t>(fixed, 0, end + 1 - 8);
  with_file(fixed, [] { lab::read_safetensors(scratch(), {"q"}, {"scale", "x"}); });
}
void run_npy(const std::string& input) {
  with_file(input, [] { lab::read_npy(scratch()); });
}

// ---- PTX: parsed, decoded, run -------------------------------------------------------------------

void run_ptx(const std::string& input) {
  Random random(std::hash<std::string>{}(input));
  MachineOptions options{.threads = random.chance(4) ? 2 : 1};
  if (random.chance(3)) options.check_race = options.check_init = options.check_sync = true;
  if (random.chance(4)) options.schedule_seed = 1 + random.below(1000);
  if (random.chance(5)) options.cache = CacheMode::warm;
  DeviceSpec spec;
  spec.memory_bytes = 64 << 20;
  WatchedMachine machine(spec, options);
  machine.patience = 20000;
  machine.instruction_limit = 20000;
  machine.heap_limit = 1 << 20;
  machine.print = [](std::string_view) {};
  std::unique_ptr<LoadedModule> module;
  try {
    module = machine.load(input);
  } catch (const PtxError&) {
    return;
  }
  ++counts.loaded;
  machine.refusals(*module);
  const auto memory = machine.memory().allocate(4096 + 16 * random.below(64), MemoryKind::device);
  const auto second = machine.memory().allocate(512, MemoryKind::pinned);
  int launches = 0;
  for (const auto& [name, function] : module->module->functions) {
    if (!function->entry || ++launches > 4) continue;
    std::vector<std::byte> params(function->param_bytes);
    for (const Param& p : function->params)
      for (std::uint32_t at = 0; at + 4 <= p.size; at += 8) {
        std::uint64_t value = random.chance(6)   ? random.engine()
                              : random.chance(3) ? second->base
                                                 : memory->base;
        if (p.size < 8 || random.chance(8)) value = random.below(300);
        std::memcpy(params.data() + p.offset + at, &value, std::min<std::uint32_t>(8, p.size - at));
      }
    LaunchRequest request;
    request.module = module.get();
    request.function = function.get();
    const std::uint32_t threads[] = {1, 31, 32, 33, 64, 100};
    request.block = {random.pick(threads), 1, 1};
    if (random.chance(5)) request.block = {8, 4, 2};
    request.grid = {static_cast<std::uint32_t>(1 + random.below(3)),
                    static_cast<std::uint32_t>(1 + random.below(2)), 1};
    request.dynamic_shared = static_cast<std::uint32_t>(random.chance(2) ? random.below(4096) : 0);
    request.params = params;
    if (random.chance(2)) {  // clusters
      request.cluster = {static_cast<std::uint32_t>(1 + random.below(3)),
                         static_cast<std::uint32_t>(1 + random.below(2)), 1};
      request.explicit_cluster = true;
      if (!random.chance(8))
        request.grid = {request.grid.x * request.cluster.x, request.grid.y * request.cluster.y, 1};
    }
    request.cooperative = random.chance(6);
    request.count = !random.chance(4);
    const LaunchOutcome outcome = machine.launch(request);
    ++counts.launched;
    counts.finished += outcome.fault.kind == FaultKind::none;
  }
  if (second) machine.memory().release(second->base);
}

// Tensor cores, calls, copies, barriers, printf: what generated code rarely puts together.
const char* const kKernels = R"(.version 8.6
.target sm_90
.address_size 64
.file 1 "/nowhere/k.cu"
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .shared .align 16 .b8 dynamic[];
.global .align 1 .b8 text[16] = {37, 100, 32, 37, 53, 46, 50, 102, 32, 37, 115, 10};
.global .align 8 .u64 pointers[2] = {generic(text), twice};
.func (.param .b32 out) twice(.param .b32 in)
{
.reg .b32 %r<3>; .reg .pred %p<2>;
ld.param.u32 %r1, [in];
setp.gt.u32 %p1, %r1, 90;
@%p1 bra DONE;
{ .param .b32 a; .param .b32 b;
add.u32 %r2, %r1, 30;
st.param.b32 [a], %r2;
call.uni (b), twice, (a);
ld.param.b32 %r1, [b]; }
DONE:
add.u32 %r1, %r1, %r1;
st.param.b32 [out], %r1;
ret;
}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 n)
.maxntid 128, 1, 1
{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .f32 %f<8>; .reg .b64 %rd<16>;
.shared .align 16 .b8 tile[1024]; .shared .align 8 .b64 bar; .local .align 8 .b8 stack[32];
.loc 1 3 1
ld.param.u64 %rd1, [p0]; cvta.to.global.u64 %rd1, %rd1; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd1, %rd2;
ld.global.u32 %r3, [%rd2]; st.local.u32 [stack+4], %r3;
mov.u32 %r4, tile; shl.b32 %r5, %r2, 4; and.b32 %r5, %r5, 511; add.u32 %r6, %r4, %r5;
cp.async.ca.shared.global [%r6], [%rd1], 16;
cp.async.commit_group; cp.async.wait_group 0;
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r6];
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r14, %r15, %r16, %r17}, {%r10, %r11, %r12, %r13}, {%r10, %r11}, {%r14, %r15, %r16, %r17};
wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}, [%r4], %r1;
stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r6], {%r14, %r15};
shfl.sync.bfly.b32 %r7|%p1, %r3, 1, 31, -1; vote.sync.ballot.b32 %r8, %p1, -1; redux.sync.add.s32 %r9, %r7, -1;
setp.eq.u32 %p2, %r2, 0;
@%p2 mbarrier.init.shared.b64 [bar], 1;
@%p2 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 64;
@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 64, [bar];
bar.sync 0;
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;
@!%p3 bra WAIT;
{ .param .b32 a; .param .b32 b;
st.param.b32 [a], %r2;
ld.global.u64 %rd7, [pointers+8];
call.uni (b), twice, (a);
P: .callprototype (.param .b32 _) _ (.param .b32 _);
call.uni (b), %rd7, (a), P;
ld.param.b32 %r30, [b]; }
rem.u32 %r31, %r2, 3;
T: .branchtargets A, B, C;
brx.idx %r31, T;
A: atom.global.add.u32 %r32, [%rd1], 1; bra.uni C;
B: red.global.max.u32 [%rd1+8], %r30;
C: bar.red.popc.u32 %r33, 1, %p1;
@%p2 bra PRINT;
bra.uni END;
PRINT: { .param .b64 f; .param .b64 v; .param .b32 c;
st.local.u32 [stack], %r33; st.local.f64 [stack+8], 0d3FF0000000000000; st.local.u64 [stack+16], 0;
cvta.global.u64 %rd8, text; cvta.local.u64 %rd9, stack; st.param.b64 [f], %rd8; st.param.b64 [v], %rd9;
call.uni (c), vprintf, (f, v); }
END: st.global.u32 [%rd2], %r33;
ret;
}
)";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<Target> targets(const std::vector<std::string>& files) {
  std::vector<std::string> ptx = {kKernels}, cubins = {small_cubin()};
  for (const std::string& file : files)
    (file.ends_with(".ptx") ? ptx : cubins).push_back(read(file));
  const std::string text = ptx.back().substr(0, 20000), cubin = cubins.back().substr(0, 20000);
  return {
      {"generated", {}, true, run_ptx},
      {"ptx", ptx, true, run_ptx},
      {"fatbin",
       {container({entry(1, 0, text.substr(0, 500)), entry(1, kLz4, text),
                   entry(1, kZstd | kSpecific, text), entry(2, kZstd, cubin)}),
        container({entry(2, kLz4, cubin)}), container({entry(1, kZstd, text.substr(0, 300))})},
       false,
       run_fatbin},
      {"cubin", cubins, false, run_cubin},
      {"safetensors",
       {safetensors(
            R"({"__metadata__":{"a":"b"},"q":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"scale":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})",
            16),
        safetensors(R"({"q":{"dtype":"F32","shape":[1,0,4],"data_offsets":[0,0]}})", 0)},
       true,
       run_safetensors},
      {"npy",
       {npy(1, "<f4", "(2, 3)", 24), npy(2, "<f2", "(4,)", 8), npy(3, "<f8", "()", 8)},
       true,
       run_npy},
  };
}

}  // namespace vgpu::fuzz
