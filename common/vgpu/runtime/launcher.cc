// build/vgpu: runs a program that was linked with the shared CUDA runtime on the virtual GPU. It
// puts the directory vgpu-lib beside itself, where libcudart.so.13 is the virtual GPU and
// libcuda.so.1 the driver interface that it does not have, in front of the library path, translates
// its flags to environment variables, and becomes the program.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/elf.h"

namespace {

constexpr char kUsage[] =
    "usage: vgpu [flags] program [arguments]\n"
    "Runs a CUDA program, compiled with nvcc --cudart shared, on the virtual GPU.\n"
    "  --device NAME         h200 (default), t4 ...            as VGPU_DEVICE=NAME\n"
    "  --profile[=json:FILE] counters of each launch           as VGPU_PROFILE=text or json:FILE\n"
    "  --check[=LIST]        all; race,init,sync,proxy,finite,bounds,host; by name alone copies, "
    "leaks\n"
    "                                                          as VGPU_CHECK=LIST\n"
    "  --cache[=warm]        hit rates and DRAM bytes          as VGPU_CACHE=1 or warm\n"
    "  --time[=sample]       how long launches take (predicted)  as VGPU_TIME=1 or sample\n"
    "  --trace KERNEL:BLOCK[:FILE]  who touches what in a block   as VGPU_TRACE=...\n"
    "  --timeline FILE       calls and kernels over time       as VGPU_TIMELINE=FILE\n"
    "  --look FILE           a page that shows its kernels from inside  as VGPU_LOOK=FILE\n"
    "  --threads N           host threads                      as VGPU_THREADS=N\n"
    "  --schedule random:N   shuffles warps and blocks         as VGPU_SCHEDULE=random:N\n"
    "  --schedule hostile:N  some run far ahead of others      as VGPU_SCHEDULE=hostile:N\n";

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "vgpu: %s\n", text.c_str());
  std::exit(2);
}

// What the launcher wants to know of a program.
struct Program {
  explicit Program(const vgpu::Elf& elf) {
    for (const Elf64_Shdr& section : elf.sections()) {
      const std::string_view name = elf.name(section);
      if (name == ".nv_fatbin" || name == "__nv_relfatbin") has_device_code = true;
      // nvcc gives every program that it links a .nv_fatbin, this section those with .cu files.
      if (name == "__nv_module_id" || name == "__nv_relfatbin") has_cuda_files = true;
      if (section.sh_type != SHT_DYNAMIC) continue;
      for (const Elf64_Dyn& entry : elf.rows<Elf64_Dyn>(section)) {
        if (entry.d_tag == DT_NEEDED)
          needed.emplace_back(vgpu::Elf::text(elf.strings(section), entry.d_un.d_val));
        if (entry.d_tag == DT_RPATH) has_rpath = true;
      }
    }
  }
  bool has_device_code = false, has_cuda_files = false, has_rpath = false;
  std::vector<std::string> needed;
};

std::span<const std::byte> map_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot read " + path + ": " + std::strerror(errno));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) fail(path + " is not a file");
  if (info.st_size == 0) fail(path + " is empty");
  const auto size = static_cast<std::size_t>(info.st_size);
  void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (bytes == MAP_FAILED) fail("cannot read " + path + ": " + std::strerror(errno));
  return {static_cast<const std::byte*>(bytes), size};
}

// As execvp finds it.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + name;
    struct stat info {};
    if (stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        access(candidate.c_str(), X_OK) == 0)
      return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  fail(name + ": no such program in PATH" +
       (access(name.c_str(), F_OK) == 0 ? "; did you mean ./" + name + "?" : ""));
}

std::string directory_of_launcher() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) fail("cannot find my own place (/proc/self/exe)");
  const std::string_view self(path, static_cast<std::size_t>(n));
  return std::string(self.substr(0, self.rfind('/')));
}

void prepend(const char* variable, const std::string& value, char separator) {
  const char* old = std::getenv(variable);
  const std::string joined = old && *old ? value + separator + old : value;
  setenv(variable, joined.c_str(), 1);
}

// The folder by a name without spaces, which separate the words of LD_PRELOAD: of one that has some, a file descriptor
// that stays open in the program. It is far from those that programs take to be their first.
std::string one_word(const std::string& folder) {
  if (folder.find(' ') == std::string::npos) return folder;
  const int opened = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int kept = fcntl(opened, F_DUPFD, 200);
  if (kept < 0) fail("cannot open " + folder + ": " + std::strerror(errno));
  return "/proc/self/fd/" + std::to_string(kept);
}

}  // namespace

int main(int argc, char** argv) {
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; ++i) {
    const std::string_view flag = argv[i];
    // --name VALUE or --name=VALUE
    const auto value = [&](std::string_view name) -> const char* {
      if (flag.starts_with(name) && flag.size() > name.size() && flag[name.size()] == '=')
        return argv[i] + name.size() + 1;
      if (flag != name) return nullptr;
      if (i + 1 >= argc) fail(std::string(name) + " needs a value\n" + kUsage);
      return argv[++i];
    };
    if (flag == "--help" || flag == "-h") {
      std::fputs(kUsage, stdout);
      if (std::fflush(stdout) == 0) return 0;
      std::fprintf(stderr, "vgpu: standard output cannot be written: %s\n", std::strerror(errno));
      return 3;
    }
    if (flag == "--") {
      ++i;
      break;
    }
    if (flag == "--profile")
      setenv("VGPU_PROFILE", "text", 1);
    else if (flag.starts_with("--profile="))
      setenv("VGPU_PROFILE", argv[i] + 10, 1);
    else if (flag == "--cache")
      setenv("VGPU_CACHE", "1", 1);
    else if (flag.starts_with("--cache="))
      setenv("VGPU_CACHE", argv[i] + 8, 1);
    else if (flag == "--time")
      setenv("VGPU_TIME", "1", 1);
    else if (flag.starts_with("--time="))
      setenv("VGPU_TIME", argv[i] + 7, 1);
    else if (flag == "--check")
      setenv("VGPU_CHECK", "all", 1);
    else if (flag.starts_with("--check="))
      setenv("VGPU_CHECK", argv[i] + 8, 1);
    else if (const char* v = value("--trace"))
      setenv("VGPU_TRACE", v, 1);
    else if (const char* v = value("--timeline"))
      setenv("VGPU_TIMELINE", v, 1);
    else if (const char* v = value("--look"))
      setenv("VGPU_LOOK", v, 1);
    else if (const char* v = value("--device"))
      setenv("VGPU_DEVICE", v, 1);
    else if (const char* v = value("--threads"))
      setenv("VGPU_THREADS", v, 1);
    else if (const char* v = value("--schedule"))
      setenv("VGPU_SCHEDULE", v, 1);
    else
      fail("unknown flag " + std::string(flag) + "\n" + kUsage);
  }
  if (i >= argc) fail(std::string("which program?\n") + kUsage);

  const std::string program = find_program(argv[i]);
  const vgpu::Elf elf(map_file(program));
  if (!elf.is_elf())
    fail(program + " is not a 64-bit ELF program; name the compiled program itself, not a script");
  const Program about(elf);
  std::string cudart;
  bool needs_vgpu = false, needs_driver = false;
  for (const std::string& library : about.needed) {
    if (library.starts_with("libcudart.so")) cudart = library;
    if (library == "libvgpu.so") needs_vgpu = true;
    if (library == "libcuda.so.1") needs_driver = true;
  }
  if (cudart.empty() && !needs_vgpu && (about.has_cuda_files || !needs_driver)) {
    if (about.has_device_code)
      fail(program +
           " has the CUDA runtime linked in statically, which cannot be replaced; "
           "compile it with nvcc --cudart shared");
    fail(program + " is not a CUDA program: it has no device code and does not use libcudart");
  }
  // In front of the others also for what opens libcuda.so.1 when it runs. The old RPATH comes
  // before LD_LIBRARY_PATH, but not before what is preloaded.
  const std::string libraries = directory_of_launcher() + "/vgpu-lib";
  prepend("LD_LIBRARY_PATH", libraries, ':');
  if (needs_driver && about.has_rpath)
    prepend("LD_PRELOAD", one_word(libraries) + "/libcuda.so.1", ' ');
  if (!cudart.empty()) {
    const std::string ours = libraries + "/" + cudart;
    if (access(ours.c_str(), R_OK) != 0)
      fail(program + " needs " + cudart + ", and there is no " + ours +
           "; compile the program with the toolkit that the virtual GPU was built with");
    // A symbol version is a name in the library's string table; without it nothing would be found.
    const auto library = map_file(ours);
    const std::string_view text(reinterpret_cast<const char*>(library.data()), library.size());
    if (text.find(std::string(cudart).append(1, '\0')) == std::string_view::npos)
      fail(program + " needs " + cudart +
           ", the virtual GPU was built for another version of CUDA; "
           "compile the program with that toolkit");
    if (about.has_rpath) prepend("LD_PRELOAD", one_word(libraries) + "/" + cudart, ' ');
  }
  execv(program.c_str(), argv + i);
  fail("cannot start " + program + ": " + std::strerror(errno));
}
