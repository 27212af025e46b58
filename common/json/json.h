// JSON in memory: read, changed and written by programs and by the virtual GPU. The library behind it,
// nlohmann's, is known to one file alone (nlohmann.cpp), since each that includes it compiles for
// three seconds. What is written has the bytes that nlohmann's ordered_json writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace json {

// What parse() throws: what is wrong, and where in the text.
struct ParseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// null, true or false, a number, a text, an array, or an object, whose members keep their order.
// What asks a value of one kind for another throws std::runtime_error, in words.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : kind_(Kind::kBool) { scalar_.boolean = value; }
  Value(int value) : Value(static_cast<long long>(value)) {}
  Value(long value) : Value(static_cast<long long>(value)) {}
  Value(long long value) : kind_(Kind::kSigned) { scalar_.signed_integer = value; }
  Value(unsigned value) : Value(static_cast<unsigned long long>(value)) {}
  Value(unsigned long value) : Value(static_cast<unsigned long long>(value)) {}
  Value(unsigned long long value) : kind_(Kind::kUnsigned) { scalar_.unsigned_integer = value; }
  Value(double value) : kind_(Kind::kDouble) { scalar_.real = value; }
  Value(const char* text) : kind_(Kind::kText), text_(text) {}
  Value(std::string text) : kind_(Kind::kText), text_(std::move(text)) {}
  Value(std::string_view text) : kind_(Kind::kText), text_(text) {}
  Value(std::vector<Value> items) : kind_(Kind::kArray), items_(std::move(items)) {}
  Value(const std::vector<std::string>& texts);
  Value(const std::vector<std::int64_t>& numbers);
  // {{"name", value}, ...} is an object: a list of pairs that begin with a text. Another list is an
  // array.
  Value(std::initializer_list<Value> list);

  Value(const Value&) = default;
  Value(Value&&) noexcept = default;
  Value& operator=(const Value&) = default;
  Value& operator=(Value&&) noexcept = default;
  ~Value() {
    if (!items_.empty()) unnest();
  }

  static Value array(std::initializer_list<Value> items = {}) { return std::vector<Value>(items); }
  static Value object();

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_boolean() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kText; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_number_unsigned() const { return kind_ == Kind::kUnsigned; }  // parsed, without a sign
  bool is_number_integer() const { return kind_ == Kind::kSigned || kind_ == Kind::kUnsigned; }
  bool is_number() const { return is_number_integer() || kind_ == Kind::kDouble; }

  // T is bool, int, std::int64_t, std::uint64_t, double, std::string or a vector of std::int64_t.
  // Numbers are converted into one another.
  template <class T>
  T get() const;

  // Of an array and of an object: how many there are, and each in turn.
  std::size_t size() const { return items_.size(); }
  const Value* begin() const { return items_.data(); }
  const Value* end() const { return items_.data() + items_.size(); }
  const Value& item(std::size_t i) const { return items_.at(i); }
  const Value& front() const { return items_.at(0); }
  const Value& back() const { return items_.at(items_.size() - 1); }
  Value& back() { return items_.at(items_.size() - 1); }
  void push_back(Value value);  // null becomes an array

  // Of an object; names()[i] is the name of item(i).
  const std::vector<std::string>& names() const { return names_; }
  const Value* find(std::string_view name) const;  // nullptr where there is none
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Value& at(std::string_view name) const;  // throws where there is none
  const Value& operator[](std::string_view name) const { return at(name); }
  Value& operator[](std::string_view name);  // null becomes an object, a new member is null
  void update(const Value& object);          // with its members

  // What a JSON pointer (RFC 6901) as "/limits/DRAM" leads to, nullptr where there is nothing. Throws
  // std::invalid_argument for what is no pointer.
  const Value* find_path(std::string_view pointer) const;

  // In one line without spaces, or with an indent of so many for each level. Bytes that are not
  // UTF-8 become U+FFFD; NaN and infinity become null.
  std::string dump(int indent = -1) const;

 private:
  enum class Kind : unsigned char {
    kNull,
    kBool,
    kSigned,
    kUnsigned,
    kDouble,
    kText,
    kArray,
    kObject
  };
  void unnest();
  [[noreturn]] void not_a(const char* wanted) const;
  template <class T>
  T number() const;
  void write(std::string& to, int indent, std::size_t column) const;

  Kind kind_ = Kind::kNull;
  union {
    bool boolean;
    long long signed_integer;
    unsigned long long unsigned_integer;
    double real;
  } scalar_ = {};
  std::string text_;
  std::vector<Value> items_;        // of arrays and objects
  std::vector<std::string> names_;  // of objects
};

// The value that a text holds, or a ParseError. Of members with the same name the last counts;
// `repeated` becomes the last name that stands twice in the outermost object.
Value parse(std::string_view text, std::string* repeated = nullptr);
// The same with null for what is no JSON.
Value parse_or_null(std::string_view text);

// As dump() writes it: the fewest digits that read back as the same number.
std::string number_text(double value);

}  // namespace json
