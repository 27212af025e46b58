// The one file that is compiled with nlohmann's library: reading JSON, and the digits of numbers.
// Without what is not used of it: a third of its headers.
#define JSON_NO_IO
#define JSON_HAS_FILESYSTEM 0
#define JSON_HAS_EXPERIMENTAL_FILESYSTEM 0
#define JSON_HAS_RANGES 0
#include <nlohmann/json.hpp>

#include "json.h"

namespace json {
namespace {

// What the library calls for each thing that it reads.
class Builder {
 public:
  using Library = nlohmann::json;

  explicit Builder(std::string* repeated) : repeated_(repeated) {}

  bool null() { return add({}); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Library::number_integer_t value) { return add(value); }
  bool number_unsigned(Library::number_unsigned_t value) { return add(value); }
  bool number_float(Library::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& text) { return add(std::move(text)); }
  bool binary(Library::binary_t&) { return false; }  // JSON has none
  bool start_object(std::size_t) { return open(Value::object()); }
  bool start_array(std::size_t) { return open(Value::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(const std::string& name) {
    Value& object = *open_.back();
    if (repeated_ && open_.size() == 1 && object.contains(name)) *repeated_ = name;
    member_ = &object[name];
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Library::exception& error) {
    error_ = error.what();
    return false;
  }

  Value take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  Value& place(Value value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }
  bool add(Value value) {
    place(std::move(value));
    return true;
  }
  bool open(Value value) {
    Value& placed = place(std::move(value));
    open_.push_back(&placed);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Value root_;
  std::vector<Value*> open_;  // arrays and objects around the place, the outermost first
  Value* member_ = nullptr;   // whose name was read last
  std::string* repeated_;
  std::string error_;
};

}  // namespace

Value parse(std::string_view text, std::string* repeated) {
  Builder builder(repeated);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    throw ParseError(builder.error());
  return builder.take();
}

Value parse_or_null(std::string_view text) {
  Builder builder(nullptr);
  return nlohmann::json::sax_parse(text.begin(), text.end(), &builder) ? builder.take() : Value();
}

std::string number_text(double value) { return nlohmann::json(value).dump(); }

}  // namespace json
