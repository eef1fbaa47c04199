// A recursive descent parser, and a writer.
#include "file/json.h"

#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_set>

namespace tpjrt::file {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json whole() {
    Json value = any(0);
    space();
    if (at_ != text_.size()) fail("something follows its end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error("no JSON: " + reason + " (byte " + std::to_string(at_) + ")");
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r')) ++at_;
  }
  void expect(char c) {
    space();
    if (peek() != c) fail(std::string("expected '") + c + "'");
    ++at_;
  }
  bool accept(char c) {
    space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool accept_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json any(int depth) {
    if (depth > Json::kDeepest) fail("it is nested too deeply");
    space();
    switch (peek()) {
      case '{': return object(depth);
      case '[': return list(depth);
      case '"': return Json(string());
      default: break;
    }
    if (accept_word("true")) return Json(true);
    if (accept_word("false")) return Json(false);
    if (accept_word("null")) return Json();
    return number();
  }

  Json object(int depth) {
    expect('{');
    Json::Object entries;
    std::unordered_set<std::string> keys;
    if (accept('}')) return Json(std::move(entries));
    do {
      space();
      std::string key = string();
      if (!keys.insert(key).second) fail("a key twice: " + key);
      expect(':');
      Json value = any(depth + 1);
      entries.emplace_back(std::move(key), std::move(value));
    } while (accept(','));
    expect('}');
    return Json(std::move(entries));
  }

  Json list(int depth) {
    expect('[');
    Json::List items;
    if (accept(']')) return Json(std::move(items));
    do {
      items.push_back(any(depth + 1));
    } while (accept(','));
    expect(']');
    return Json(std::move(items));
  }

  Json number() {
    const size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.eE0123456789").find(peek()) != std::string_view::npos) ++at_;
    const std::string_view token = text_.substr(start, at_ - start);
    const char* end = token.data() + token.size();
    if (token.find_first_of(".eE") == std::string_view::npos) {
      int64_t integer = 0;
      const auto [rest, error] = std::from_chars(token.data(), end, integer);
      if (error == std::errc() && rest == end) return Json(integer);
    }
    // strtod, because older systems have from_chars for integers alone.
    static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
    const std::string copy(token);
    char* rest = nullptr;
    const double real = strtod_l(copy.c_str(), &rest, plain);
    if (token.empty() || rest != copy.data() + copy.size() || !std::isfinite(real)) {
      at_ = start;
      fail("expected a value");
    }
    return Json(real);
  }

  uint32_t hex() {
    uint32_t code = 0;
    if (at_ + 4 > text_.size()) fail("a string ends within a \\u");
    const char* first = text_.data() + at_;
    const auto [rest, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc() || rest != first + 4) fail("a \\u without four hexadecimal digits");
    at_ += 4;
    return code;
  }

  static void append(std::string& out, uint32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xE0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | code >> 18);
      out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
      out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (code & 0x3F));
    }
  }

  std::string string() {
    if (peek() != '"') fail("expected a string");
    ++at_;
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) fail("a string without an end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = at_ < text_.size() ? text_[at_++] : '\0';
      switch (escape) {
        case '"':
        case '\\':
        case '/': out += escape; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u': {
          uint32_t code = hex();
          if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
            at_ += 2;
            const uint32_t low = hex();
            if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          }
          append(out, code);
          break;
        }
        default: fail("an unknown escape in a string");
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

void write(std::string& out, const Json& json) {
  struct {
    std::string& out;
    void operator()(std::monostate) const { out += "null"; }
    void operator()(bool value) const { out += value ? "true" : "false"; }
    void operator()(int64_t value) const { out += std::to_string(value); }
    void operator()(double value) const {
      char text[32];
      std::snprintf(text, sizeof text, "%.17g", value);
      out += std::isfinite(value) ? text : "null";
    }
    void operator()(const std::string& value) const { out += quoted(value); }
    void operator()(const Json::List& items) const {
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ',';
        write(out, items[i]);
      }
      out += ']';
    }
    void operator()(const Json::Object& entries) const {
      out += '{';
      for (size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) out += ',';
        out += quoted(entries[i].first) + ':';
        write(out, entries[i].second);
      }
      out += '}';
    }
  } writer{out};
  std::visit(writer, json.value());
}

template <class T, class Variant>
const T& held(const Variant& value, std::string_view what, const char* kind) {
  if (const T* found = std::get_if<T>(&value)) return *found;
  throw Error(std::string(what) + " is no " + kind);
}

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).whole(); }

std::string Json::text() const {
  std::string out;
  write(out, *this);
  return out;
}

bool Json::boolean(std::string_view what) const { return held<bool>(value_, what, "boolean"); }
int64_t Json::integer(std::string_view what) const { return held<int64_t>(value_, what, "integer"); }
const std::string& Json::string(std::string_view what) const { return held<std::string>(value_, what, "string"); }
const Json::List& Json::list(std::string_view what) const { return held<List>(value_, what, "list"); }
const Json::Object& Json::object(std::string_view what) const { return held<Object>(value_, what, "object"); }

const Json* Json::find(std::string_view key) const {
  const auto* entries = std::get_if<Object>(&value_);
  if (!entries) return nullptr;
  for (const auto& [name, value] : *entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* found = find(key)) return *found;
  throw Error("'" + std::string(key) + "' is missing");
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace tpjrt::file
