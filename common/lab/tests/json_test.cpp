// JSON values: every byte as nlohmann's ordered_json writes it, every text read as it reads it.
#include "json/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace {

using Library = nlohmann::ordered_json;
using json::Value;

std::string written(const Library& value, int indent) {
  return value.dump(indent, ' ', false, Library::error_handler_t::replace);
}

// The same value built in both, of random kinds, texts and numbers.
struct Pair {
  Value ours;
  Library theirs;
};

std::string random_text(std::mt19937_64& random) {
  // Bytes that begin, continue and break characters of UTF-8, and those that are escaped.
  static const unsigned char bytes[] = {'a',  'b',  '"',  '\\', '/',  '\b', '\f', '\n',
                                        '\r', '\t', 0,    0x1f, 0x7f, 0x80, 0x8f, 0x90,
                                        0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0,
                                        0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
  std::string text;
  for (std::uint64_t left = random() % 12; left > 0; --left)
    text += static_cast<char>(bytes[random() % sizeof bytes]);
  return text;
}

double random_double(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  double value;
  switch (random() % 4) {
    case 0:
      std::memcpy(&value, &bits, sizeof value);
      return value;  // NaN and infinity, too
    case 1:
      return static_cast<double>(static_cast<std::int64_t>(bits % 2'000'001) - 1'000'000);
    case 2:
      return static_cast<double>(bits % 1'000'000) / 1000;
    default:
      return std::ldexp(1.0, static_cast<int>(bits % 140) - 70);
  }
}

Pair random_value(std::mt19937_64& random, int depth) {
  switch (random() % (depth > 0 ? 8 : 6)) {
    case 0:
      return {nullptr, nullptr};
    case 1: {
      const bool yes = random() % 2 == 0;
      return {yes, yes};
    }
    case 2: {
      const auto number = static_cast<std::int64_t>(random()) >> random() % 64;
      return {number, number};
    }
    case 3: {
      const std::uint64_t number = random() >> random() % 64;
      return {number, number};
    }
    case 4: {
      const double number = random_double(random);
      return {number, number};
    }
    case 5: {
      const std::string text = random_text(random);
      return {text, text};
    }
    case 6: {
      Pair list{Value::array(), Library::array()};
      for (std::uint64_t left = random() % 5; left > 0; --left) {
        const Pair item = random_value(random, depth - 1);
        list.ours.push_back(item.ours);
        list.theirs.push_back(item.theirs);
      }
      return list;
    }
    default: {
      Pair object{Value::object(), Library::object()};
      for (std::uint64_t left = random() % 5; left > 0; --left) {
        const Pair item = random_value(random, depth - 1);
        const std::string name = random_text(random);
        object.ours[name] = item.ours;
        object.theirs[name] = item.theirs;
      }
      return object;
    }
  }
}

}  // namespace

TEST_CASE("json: random values are written as the library writes them, and read back") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    Pair pair = random_value(random, 4);
    for (const int indent : {-1, 0, 2}) {
      const std::string text = pair.ours.dump(indent);
      REQUIRE(text == written(pair.theirs, indent));
      REQUIRE(json::parse(text).dump(indent) == written(Library::parse(text), indent));
    }
  }
}

TEST_CASE("json: what is built from lists and vectors") {
  const Value value = {
      {"texts", std::vector<std::string>{"a", "b"}},
      {"shape", std::vector<std::int64_t>{2, 3}},
      {"pair", {1, 2.5}},
      {"nothing", nullptr},
      {"inner", {{"yes", true}, {"none", Value::array()}, {"no", Value::object()}}}};
  CHECK(value.dump() == R"({"texts":["a","b"],"shape":[2,3],"pair":[1,2.5],"nothing":null,)"
                        R"("inner":{"yes":true,"none":[],"no":{}}})");
  CHECK(value.at("shape").get<std::vector<std::int64_t>>() == std::vector<std::int64_t>{2, 3});
  CHECK(value["pair"].front().get<int>() == 1);
  CHECK(value["pair"].back().get<double>() == 2.5);
  CHECK(value["pair"].item(1).get<int>() == 2);

  Value changed;
  changed["b"]["inner"] = 1;
  changed["a"] = 2;
  changed["b"]["other"] = 3;
  changed["list"].push_back(4);
  changed.update({{"a", 5}, {"new", "text"}});
  CHECK(changed.dump() == R"({"b":{"inner":1,"other":3},"a":5,"list":[4],"new":"text"})");
}

TEST_CASE("json: what is asked for and is something else is named") {
  const Value value = {{"text", "a"}, {"number", 1}};
  CHECK_THROWS_WITH(value["text"].get<double>(), "JSON: a text where a number is expected");
  CHECK_THROWS_WITH(value["number"].get<bool>(), "JSON: a number where true or false is expected");
  CHECK_THROWS_WITH(value.at("other"), "JSON: 'other' is missing");
  CHECK_THROWS_WITH(value["number"].at("x"), "JSON: a number where an object is expected");
  CHECK_THROWS_AS(Value::array().front(), std::out_of_range);
}

TEST_CASE("json: damaged texts are refused with the library's words") {
  const std::string good = R"({"a": [1, -2, 3.5e2, "\u00e9\n"], "b": {"c": null, "d": true}})";
  REQUIRE(json::parse(good).dump() == Library::parse(good).dump());
  int refused = 0;
  const auto compare = [&](const std::string& text) {
    CAPTURE(text);
    try {
      const Library theirs = Library::parse(text);
      REQUIRE(json::parse(text).dump(1) == written(theirs, 1));
    } catch (const Library::exception& error) {
      ++refused;
      REQUIRE_THROWS_WITH_AS(json::parse(text), error.what(), json::ParseError);
      REQUIRE(json::parse_or_null(text).is_null());
    }
  };
  for (std::size_t i = 0; i <= good.size(); ++i) {
    compare(good.substr(0, i));
    for (const char c : {'"', '}', ']', ',', '0', '\\', '\x80', '\0'}) {
      std::string damaged = good;
      if (i < good.size()) damaged[i] = c;
      compare(damaged);
      compare(good.substr(0, i) + c + good.substr(i));
    }
  }
  compare("1e999");
  compare("[1] 2");
  CHECK(refused > 300);
}

TEST_CASE("json: names that stand twice") {
  std::string twice;
  CHECK(json::parse(R"({"a": 1, "b": {"c": 1, "c": 2}})", &twice).dump() ==
        R"({"a":1,"b":{"c":2}})");
  CHECK(twice == "");  // it is not in the outermost object
  CHECK(json::parse(R"({"a": 1, "b": 2, "a": [3]})", &twice).dump() == R"({"a":[3],"b":2})");
  CHECK(twice == "a");
}

TEST_CASE("json: pointers lead where the library's lead") {
  const std::string text = R"({"a": {"b/c": 1, "d~e": [10, [20, 30]]}, "": {"": 5}, "0": 6})";
  const Value ours = json::parse(text);
  const Library theirs = Library::parse(text);
  for (const char* pointer :
       {"", "/", "//", "/a", "/a/b~1c", "/a/b/c", "/a/d~0e/0", "/a/d~0e/1/1", "/a/d~0e/2",
        "/a/d~0e/01", "/a/d~0e/-", "/a/d~0e/x", "/a/d~0e/1/0/0", "/0", "/1", "/a/"}) {
    CAPTURE(pointer);
    const Value* const found = ours.find_path(pointer);
    const Library::json_pointer at(pointer);
    REQUIRE((found != nullptr) == theirs.contains(at));
    if (found) CHECK(found->dump() == theirs.at(at).dump());
  }
  CHECK(ours.find_path("/a/d~0e/") == nullptr);  // the library throws
  CHECK_THROWS_WITH_AS(ours.find_path("a"), "JSON pointer 'a': it must be empty or begin with /",
                       std::invalid_argument);
  for (const char* bad : {"/a~", "/a~2"})
    CHECK_THROWS_AS(ours.find_path(bad), std::invalid_argument);
}

TEST_CASE("json: nesting as deep as a file may be does not exhaust the stack") {
  const std::size_t depth = 1'000'000;
  const Value deep = json::parse(std::string(depth, '[') + std::string(depth, ']'));
  CHECK(deep.size() == 1);
}
