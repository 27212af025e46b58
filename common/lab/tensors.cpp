// Tensor files: safetensors both ways, .npy in. Files come from anywhere, so nothing in them is
// believed before it is checked against the file's own length.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "errors.h"
#include "files.h"
#include "json/json.h"
#include "lab.cuh"
#include "tensors.h"

static_assert(std::endian::native == std::endian::little, "the file formats are little-endian");

namespace lab {
namespace {

using Json = json::Value;

constexpr uint64_t kMaxHeader = 100'000'000;  // bytes, the limit of the format's own reader
constexpr int kMaxDepth = 3;                  // {"name": {"shape": [1, 2]}}

// Bytes of one element, 0 for a type that the format does not have.
uint64_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

// An opened safetensors file whose header has been checked as a whole.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path)
      : path_(path), size_(uint64_t(file_size(path))), file_(path, std::ios::binary) {
    if (!file_) fail("cannot be opened");
    const std::string header = read_header();
    parse(header);
    check_tiling();
  }

  // nullptr when there is none.
  const Entry* find(const std::string& name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry;
    return nullptr;
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw UsageError(path_ + ": " + reason);
  }

  std::string names() const {
    std::string text;
    for (size_t i = 0; i < entries_.size() && i < 8; ++i)
      text += (i ? ", " : "") + entries_[i].name;
    return entries_.size() > 8 ? text + ", ..." : text.empty() ? "nothing" : text;
  }

  Tensor read(const Entry& entry) {
    if (entry.dtype != "F16" && entry.dtype != "F32")
      fail("tensor '" + entry.name + "' is " + entry.dtype + ", F16 or F32 is needed");
    const uint64_t bytes = entry.end - entry.begin;
    const std::vector<char> raw = read_bytes(entry, 3);

    Tensor tensor{entry.shape, {}, entry.dtype};
    tensor.values.resize(bytes / dtype_bytes(entry.dtype));
    if (bytes == 0) return tensor;
    if (entry.dtype == "F32") {
      std::memcpy(tensor.values.data(), raw.data(), bytes);
    } else {
      std::vector<half> halves(tensor.values.size());
      std::memcpy(static_cast<void*>(halves.data()), raw.data(), bytes);
      tensor.values = to_float(halves);
    }
    return tensor;
  }

  Numbers read_numbers(const Entry& entry) {
    if (entry.dtype == "F16" || entry.dtype == "F32") {
      const Tensor tensor = read(entry);
      return {tensor.shape, {tensor.values.begin(), tensor.values.end()}};
    }
    if (entry.dtype != "I64" && entry.dtype != "I32")
      fail("tensor '" + entry.name + "' is " + entry.dtype + ", I64, I32, F32 or F16 is needed");
    const std::vector<char> raw = read_bytes(entry, 5);
    Numbers numbers{entry.shape, {}};
    const auto take = [&]<class Integer>(Integer number) {
      for (size_t at = 0; at < raw.size(); at += sizeof number) {
        std::memcpy(&number, &raw[at], sizeof number);
        numbers.values.push_back(static_cast<long double>(number));
      }
    };
    entry.dtype == "I64" ? take(int64_t()) : take(int32_t());
    return numbers;
  }

 private:
  // A tensor's bytes, of which there will be that many times as much on the host.
  std::vector<char> read_bytes(const Entry& entry, double times) {
    const uint64_t bytes = entry.end - entry.begin;
    require_host_memory(times * double(bytes), path_ + ": tensor '" + entry.name + "'");
    std::vector<char> raw(bytes);
    file_.seekg(std::streamoff(data_start_ + entry.begin));
    if (!file_.read(raw.data(), std::streamsize(bytes)))
      fail("tensor '" + entry.name + "' cannot be read");
    return raw;
  }

  std::string read_header() {
    uint64_t length = 0;
    if (size_ < 8)
      fail(format("%llu bytes are no safetensors file: the header's length takes 8",
                  static_cast<unsigned long long>(size_)));
    file_.read(reinterpret_cast<char*>(&length), 8);
    if (length > kMaxHeader || length > size_ - 8 || length < 2)
      fail(format(
          "no safetensors file, or a damaged one: bad header length %llu; the file has %llu bytes "
          "after it, 2 to %llu are possible",
          static_cast<unsigned long long>(length), static_cast<unsigned long long>(size_ - 8),
          static_cast<unsigned long long>(kMaxHeader)));
    require_host_memory(20.0 * double(length), path_ + ": the header");
    data_start_ = 8 + length;
    std::string header(length, '\0');
    if (!file_.read(header.data(), std::streamsize(length))) fail("the header cannot be read");
    return header;
  }

  // Before the parser sees it: nesting is cheap to write and dear to build.
  void check_depth(const std::string& header) const {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < header.size(); ++i) {
      const char c = header[i];
      if (in_string && c == '\\')
        ++i;
      else if (c == '"')
        in_string = !in_string;
      else if (!in_string && (c == '{' || c == '[') && ++depth > kMaxDepth)
        fail(format("the header is nested deeper than %d", kMaxDepth));
      else if (!in_string && (c == '}' || c == ']'))
        --depth;
    }
  }

  void parse(const std::string& header) {
    if (header[0] != '{') fail("the header is no JSON object: it does not begin with '{'");
    // The parser would take the first one for the end of the text.
    if (const size_t nul = header.find('\0'); nul != std::string::npos)
      fail(format(
          "the header has a byte 0 at place %zu of %zu, it may be filled up with spaces only", nul,
          header.size()));
    check_depth(header);
    std::string twice;
    Json json;
    try {
      json = json::parse(header, &twice);
    } catch (const json::ParseError& error) {
      fail(std::string("the header is no valid JSON: ") + error.what());
    }
    if (!twice.empty()) fail("tensor '" + twice + "' is there twice");
    std::map<std::string, const Json*>
        by_name;  // what is found wrong first is the same in any order
    for (size_t i = 0; i < json.size(); ++i) by_name[json.names()[i]] = &json.item(i);
    for (const auto& [name, value] : by_name) {
      if (name == "__metadata__") {
        check_metadata(*value);
      } else {
        entries_.push_back(parse_entry(name, *value));
      }
    }
  }

  void check_metadata(const Json& metadata) const {
    if (!metadata.is_object()) fail("__metadata__ is no object of texts");
    for (const Json& value : metadata)
      if (!value.is_string()) fail("__metadata__ is no object of texts");
  }

  Entry parse_entry(const std::string& name, const Json& json) const {
    const std::string wrong = "tensor '" + name + "': ";
    const auto is_sizes = [](const Json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& number) {
               return number.is_number_unsigned() && number.get<uint64_t>() <= INT64_MAX;
             });
    };
    if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string())
      fail(wrong + "dtype is missing or no text");
    if (!json.contains("shape") || !is_sizes(json["shape"]))
      fail(wrong + "shape is missing or no list of sizes");
    if (!json.contains("data_offsets") || !is_sizes(json["data_offsets"]) ||
        json["data_offsets"].size() != 2)
      fail(wrong + "data_offsets is missing or no pair [begin, end]");

    Entry entry{name, json["dtype"].get<std::string>(), json["shape"].get<std::vector<int64_t>>(),
                json["data_offsets"].item(0).get<uint64_t>(),
                json["data_offsets"].item(1).get<uint64_t>()};
    uint64_t bytes = dtype_bytes(entry.dtype);
    if (bytes == 0) fail(wrong + "dtype '" + entry.dtype + "' is not known");
    for (const int64_t size : entry.shape)
      if (__builtin_mul_overflow(bytes, uint64_t(size), &bytes))
        fail(wrong + "shape " + shape_text(entry.shape) + " is larger than 2^64 bytes");
    if (entry.begin > entry.end || entry.end > size_ - data_start_)
      fail(wrong +
           format("data_offsets [%llu, %llu] are out of range, the file has %llu data bytes",
                  static_cast<unsigned long long>(entry.begin),
                  static_cast<unsigned long long>(entry.end),
                  static_cast<unsigned long long>(size_ - data_start_)));
    if (entry.end - entry.begin != bytes)
      fail(wrong + format("%s of shape %s takes %llu bytes, data_offsets give it %llu",
                          entry.dtype.c_str(), shape_text(entry.shape).c_str(),
                          static_cast<unsigned long long>(bytes),
                          static_cast<unsigned long long>(entry.end - entry.begin)));
    return entry;
  }

  void check_tiling() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t end = 0;
    std::string before = "the header";
    for (const Entry& entry : entries_) {
      if (entry.begin < end) fail("tensors '" + before + "' and '" + entry.name + "' overlap");
      if (entry.begin > end) fail("a hole between '" + before + "' and '" + entry.name + "'");
      end = entry.end;
      before = entry.name;
    }
    if (end != size_ - data_start_)
      fail(format("%llu bytes after the last tensor belong to none",
                  static_cast<unsigned long long>(size_ - data_start_ - end)));
  }

  std::string path_;
  uint64_t size_ = 0, data_start_ = 0;
  std::ifstream file_;
  std::vector<Entry> entries_;
};

}  // namespace

std::vector<float> to_float(const std::vector<half>& values) {
  std::vector<float> floats(values.size());
  for (size_t i = 0; i < values.size(); ++i) floats[i] = __half2float(values[i]);
  return floats;
}

Numbers read_numbers(const std::string& path, const std::string& name) {
  SafetensorsFile file(path);
  const Entry* entry = file.find(name);
  if (!entry) file.fail("tensor '" + name + "' is missing, the file has " + file.names());
  return file.read_numbers(*entry);
}

std::vector<Tensor> read_safetensors(const std::string& path,
                                     const std::vector<std::string>& required,
                                     const std::vector<std::string>& optional) {
  SafetensorsFile file(path);
  std::vector<Tensor> tensors;
  for (const std::string& name : required) {
    const Entry* entry = file.find(name);
    if (!entry) file.fail("tensor '" + name + "' is missing, the file has " + file.names());
    tensors.push_back(file.read(*entry));
  }
  for (const std::string& name : optional) {
    const Entry* entry = file.find(name);
    tensors.push_back(entry ? file.read(*entry) : Tensor{});
  }
  return tensors;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool is_there(const Tensor& tensor) { return !tensor.shape.empty() || !tensor.values.empty(); }

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::map<std::string, Json> entries;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (elements != int64_t(tensor.values.size()) ||
        (tensor.dtype != "F16" && tensor.dtype != "F32"))
      throw std::invalid_argument("write_safetensors: '" + name + "' " + tensor.dtype + " " +
                                  shape_text(tensor.shape) + " with " +
                                  std::to_string(tensor.values.size()) + " values");
    const size_t begin = data.size();
    for (const float value : tensor.values) {
      const half rounded = __float2half(value);
      if (tensor.dtype == "F16")
        data.append(reinterpret_cast<const char*>(&rounded), 2);
      else
        data.append(reinterpret_cast<const char*>(&value), 4);
    }
    entries[name] = {
        {"data_offsets", {begin, data.size()}}, {"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  Json header = Json::object();  // sorted by name
  for (auto& [name, entry] : entries) header[name] = std::move(entry);
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the format's reader likes the data aligned
  const uint64_t length = text.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

Array read_npy(const std::string& path) {
  const std::string content = read_file(path);
  const auto fail = [&](const std::string& reason) { throw UsageError(path + ": " + reason); };
  if (content.size() < 12 || content.compare(0, 6, "\x93NUMPY") != 0) fail("is no .npy file");
  const int version = content[6];
  if (version < 1 || version > 3) fail(format(".npy version %d, 1 to 3 are read", version));
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, content.data() + 8, length_bytes);
  const size_t data_start = 8 + length_bytes + length;
  if (data_start > content.size()) fail("the header is longer than the file");
  const std::string header = content.substr(8 + length_bytes, length);

  // The header is a Python dictionary with three known keys.
  const auto after = [&](const std::string& key) {
    const size_t at = header.find("'" + key + "':");
    if (at == std::string::npos) fail("'" + key + "' is missing in the header");
    const size_t value = header.find_first_not_of(' ', at + key.size() + 3);
    if (value == std::string::npos) fail("'" + key + "' has no value in the header");
    return value;
  };
  if (header.compare(after("fortran_order"), 5, "False") != 0) fail("is not in C order");
  const std::string dtype = header.substr(after("descr"), 5);
  const size_t bytes = dtype == "'<f2'" ? 2 : dtype == "'<f4'" ? 4 : dtype == "'<f8'" ? 8 : 0;
  if (bytes == 0) fail("dtype " + dtype + ", '<f2', '<f4' or '<f8' is needed");
  Array array;
  size_t count = 1, at = after("shape");
  if (at >= header.size() || header[at] != '(') fail("shape is no tuple");
  for (++at; at < header.size() && header[at] != ')';) {
    if (header[at] == ',' || header[at] == ' ') {
      ++at;
      continue;
    }
    size_t used = 0;
    try {
      array.shape.push_back(std::stoll(header.substr(at, 20), &used));
    } catch (const std::exception&) {
      fail("shape is no tuple of sizes");
    }
    if (array.shape.back() < 0 || __builtin_mul_overflow(count, size_t(array.shape.back()), &count))
      fail("shape " + shape_text(array.shape) + " is not possible");
    at += used;
  }
  if (count > content.size() || count * bytes != content.size() - data_start)
    fail(format("shape %s of %s takes %zu bytes, the file has %zu", shape_text(array.shape).c_str(),
                dtype.c_str(), count * bytes, content.size() - data_start));

  array.values.resize(count);
  const char* data = content.data() + data_start;
  for (size_t i = 0; i < count; ++i, data += bytes) {
    half f2;
    float f4;
    switch (bytes) {
      case 2:
        std::memcpy(static_cast<void*>(&f2), data, 2);
        array.values[i] = __half2float(f2);
        break;
      case 4:
        std::memcpy(&f4, data, 4);
        array.values[i] = f4;
        break;
      default:
        std::memcpy(&array.values[i], data, 8);
    }
  }
  return array;
}

}  // namespace lab
