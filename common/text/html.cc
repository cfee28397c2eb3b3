#include "common/text/html.h"

#include <algorithm>
#include <array>
#include <string>

#include "common/strings.h"
#include "common/text/entities.h"

namespace ragcache {
namespace {

// Lists are in order, for binary search.
constexpr std::array<std::string_view, 9> kDropped = {
    "button", "canvas", "map", "math", "object", "select", "svg", "template", "video"};
// Their content is no markup.
constexpr std::array<std::string_view, 6> kRaw = {"iframe", "noscript", "script",
                                                  "style",  "textarea", "title"};
constexpr std::array<std::string_view, 31> kBlocks = {
    "address", "article", "aside",    "blockquote", "body",    "center", "details", "dialog",
    "div",     "dl",      "fieldset", "figure",     "footer",  "form",   "h1",      "h2",
    "h3",      "h4",      "h5",       "h6",         "header",  "hr",     "main",    "nav",
    "ol",      "p",       "pre",      "section",    "summary", "table",  "ul"};
constexpr std::array<std::string_view, 8> kLines = {"br", "caption", "dd",    "dt",
                                                    "li", "option",  "thead", "tr"};
static_assert(std::ranges::is_sorted(kDropped) && std::ranges::is_sorted(kRaw) &&
              std::ranges::is_sorted(kBlocks) && std::ranges::is_sorted(kLines));
// A charset is looked for in so many bytes.
constexpr size_t kCharsetBytes = 4096;
constexpr size_t kTitleBytesMax = 1024;
constexpr std::string_view kNoBreakSpace = "\xC2\xA0";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\f' || c == '\r'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

template <size_t n>
bool is_one_of(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::ranges::binary_search(names, name);
}

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(),
                                                   [](char a, char b) { return a == to_lower(b); });
}

struct Tag {
  std::string name;  // in small letters
  bool closes = false;
  size_t end = 0;  // behind its '>'
};

// The tag that begins at `begin`, which is that of "<x" or "</x". Attributes are passed over.
Tag read_tag(std::string_view html, size_t begin) {
  Tag tag;
  size_t at = begin + 1;
  if (html[at] == '/') {
    tag.closes = true;
    ++at;
  }
  for (; at < html.size() && !is_space(html[at]) && html[at] != '>' && html[at] != '/'; ++at) {
    tag.name += to_lower(html[at]);
  }
  char quote = 0;
  for (; at < html.size(); ++at) {
    const char c = html[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '>') {
      break;
    } else if ((c == '"' || c == '\'') && html[at - 1] == '=') {
      quote = c;
    }
  }
  tag.end = std::min(at + 1, html.size());
  return tag;
}

// Text with its white space put in order, block by block.
class Writer {
 public:
  void add(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      char c = text[i];
      if (text.substr(i).starts_with(kNoBreakSpace)) {
        c = ' ';
        i += kNoBreakSpace.size() - 1;
      }
      if (!is_space(c)) {
        break_lines();
        if (space_ && !text_.empty() && text_.back() != '\n') text_ += ' ';
        space_ = false;
        text_ += c;
      } else if (preformatted_ && c == '\n') {
        breaks_ = std::max(breaks_, 1);
      } else if (preformatted_) {
        break_lines();
        text_ += c;
      } else {
        space_ = true;
      }
    }
  }

  void end_line() { breaks_ = std::max(breaks_, 1); }
  void end_block() { breaks_ = 2; }
  void set_preformatted(bool preformatted) { preformatted_ = preformatted; }

  std::string take() { return std::string(trimmed(text_)); }

 private:
  void break_lines() {
    if (breaks_ > 0 && !text_.empty()) {
      text_.append(static_cast<size_t>(breaks_), '\n');
      space_ = false;
    }
    breaks_ = 0;
  }

  std::string text_;
  int breaks_ = 0;  // due before the next character
  bool space_ = false;
  bool preformatted_ = false;
};

class Reader {
 public:
  explicit Reader(std::string_view html) : html_(html) {}

  TitledText run() {
    while (at_ < html_.size()) {
      const size_t open = std::min(html_.find('<', at_), html_.size());
      add_text(html_.substr(at_, open - at_));
      at_ = open;
      if (at_ < html_.size()) read_markup();
    }
    TitledText read{.text = body_.take()};
    read.title = title_.take();
    if (read.title.empty()) read.title = heading_.take();
    if (read.title.size() > kTitleBytesMax) read.title.clear();
    return read;
  }

 private:
  void read_markup() {
    const std::string_view rest = html_.substr(at_);
    if (rest.starts_with("<!--")) return skip_behind("-->", 4);
    if (rest.starts_with("<![CDATA[")) return skip_behind("]]>", 9);
    if (rest.size() > 1 && (rest[1] == '!' || rest[1] == '?')) return skip_behind(">", 2);
    const size_t letter = rest.size() > 1 && rest[1] == '/' ? 2 : 1;
    if (rest.size() <= letter || !is_letter(rest[letter])) {
      add_text("<");
      ++at_;
      return;
    }
    const Tag tag = read_tag(html_, at_);
    at_ = tag.end;
    if (tag.closes) {
      close(tag.name);
    } else {
      open(tag.name);
    }
  }

  void open(const std::string& name) {
    if (is_one_of(kRaw, name)) return read_raw(name);
    if (!dropped_.empty()) {
      depth_ += name == dropped_;
      return;
    }
    if (is_one_of(kDropped, name)) {
      dropped_ = name;
      depth_ = 1;
      return;
    }
    break_before(name);
    if (name == "td" || name == "th") body_.add(" ");
    if (name == "li") body_.add("- ");
    if (name == "pre") body_.set_preformatted(true);
    if (name == "h1" && !heading_done_) in_heading_ = true;
  }

  void close(const std::string& name) {
    if (!dropped_.empty()) {
      if (name == dropped_ && --depth_ == 0) dropped_.clear();
      return;
    }
    break_before(name);
    if (name == "pre") body_.set_preformatted(false);
    if (name == "h1" && in_heading_) {
      in_heading_ = false;
      heading_done_ = true;
    }
  }

  void break_before(const std::string& name) {
    if (is_one_of(kBlocks, name)) body_.end_block();
    if (is_one_of(kLines, name)) body_.end_line();
  }

  // What follows is no markup, up to the end tag; only a title is kept.
  void read_raw(const std::string& name) {
    const std::string end_tag = "</" + name;
    size_t end = at_;
    while (end < html_.size() && !starts_with_ignoring_case(html_.substr(end), end_tag)) {
      end = std::min(html_.find('<', end + 1), html_.size());
    }
    if (name == "title" && dropped_.empty() && !has_title_) {
      title_.add(decode_entities(html_.substr(at_, end - at_)));
      has_title_ = true;
    }
    at_ = end < html_.size() ? read_tag(html_, end).end : end;
  }

  void add_text(std::string_view text) {
    if (!dropped_.empty() || text.empty()) return;
    const std::string decoded = decode_entities(text);
    body_.add(decoded);
    if (in_heading_) heading_.add(decoded);
  }

  void skip_behind(std::string_view mark, size_t from) {
    const size_t found = html_.find(mark, at_ + from);
    at_ = found == std::string_view::npos ? html_.size() : found + mark.size();
  }

  const std::string_view html_;
  size_t at_ = 0;
  std::string dropped_;  // the element whose content is left out, if inside one
  size_t depth_ = 0;     // of that element in itself
  bool has_title_ = false;
  bool in_heading_ = false;
  bool heading_done_ = false;
  Writer body_, title_, heading_;
};

}  // namespace

absl::Status check_html_charset(std::string_view html) {
  std::string head(html.substr(0, kCharsetBytes));
  std::ranges::transform(head, head.begin(), to_lower);
  const size_t meta = head.find("<meta");
  size_t at = meta == std::string::npos ? meta : head.find("charset", meta);
  if (at == std::string::npos) return absl::OkStatus();
  at = head.find_first_not_of(" \t\n\r=\"'", at + std::string_view("charset").size());
  if (at == std::string::npos) return absl::OkStatus();
  const std::string charset = head.substr(at, head.find_first_of(" \t\n\r\"';/>", at) - at);
  // In ASCII nearly all of them are the same.
  const bool is_ascii = std::ranges::all_of(html, [](char c) { return (c & 0x80) == 0; });
  if (is_ascii || charset == "utf-8" || charset == "utf8") return absl::OkStatus();
  return absl::InvalidArgumentError(str_cat("is in charset ", charset, ": only UTF-8 is read"));
}

TitledText read_html(std::string_view html) { return Reader(html).run(); }

}  // namespace ragcache
