#include "common/text/markdown.h"

#include <algorithm>
#include <string>
#include <vector>

namespace ragcache {
namespace {

constexpr size_t kTitleBytesMax = 1024;
// The front matter ends within so many bytes or is none.
constexpr size_t kFrontMatterBytesMax = 64 << 10;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

// Whether the line is made of `mark` and spaces alone, at least `n_min` marks.
bool is_made_of(std::string_view line, char mark, size_t n_min) {
  const auto marks = static_cast<size_t>(std::ranges::count(line, mark));
  const auto spaces = static_cast<size_t>(std::ranges::count(line, ' '));
  return marks >= n_min && marks + spaces == line.size();
}

bool is_rule(std::string_view line) {
  return is_made_of(line, '-', 3) || is_made_of(line, '*', 3) || is_made_of(line, '_', 3);
}

// |---|:--:|
bool is_table_rule(std::string_view line) {
  return line.find('|') != std::string_view::npos && line.find('-') != std::string_view::npos &&
         line.find_first_not_of("|-: ") == std::string_view::npos;
}

// [name]: address
bool is_link_definition(std::string_view line) {
  const size_t end = line.find("]:");
  return line.starts_with('[') && !line.starts_with("[^") && end != std::string_view::npos &&
         end > 1 && line.find(']') == end;
}

std::string_view unquoted(std::string_view value) {
  value = trimmed(value);
  if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) {
    return value.substr(1, value.size() - 2);
  }
  return value;
}

// Takes the block between --- and --- off the beginning, if there is one; gives its title.
std::string take_front_matter(std::string_view& markdown) {
  std::string_view rest = markdown.substr(0, kFrontMatterBytesMax);
  if (trimmed(next_line(rest)) != "---") return "";
  std::string title;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (line == "---" || line == "...") {
      markdown.remove_prefix(static_cast<size_t>(rest.data() - markdown.data()));
      return title;
    }
    if (line.starts_with("title:")) title = unquoted(line.substr(6));
  }
  return "";
}

// One line without inline marks. Linear: nested links do not nest calls.
class Inline {
 public:
  explicit Inline(std::string_view text) : text_(text) {
    if (text.find("](") != text.npos || text.find("][") != text.npos) find_links();
  }

  std::string run() {
    while (at_ < text_.size()) {
      if (!take_code() && !take_escape() && !take_link() && !take_tag() && !take_strong()) {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  // [text](address), [text][name]: fills jumps_.
  void find_links() {
    constexpr size_t kNone = 0;
    std::vector<size_t> square, round;          // open brackets
    std::vector<size_t> partner(text_.size());  // of closing brackets: the open ones, + 1
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '\\') ++at;
      if (c == '[') square.push_back(at);
      if (c == '(') round.push_back(at);
      std::vector<size_t>& open = c == ']' ? square : round;
      if ((c == ']' || c == ')') && !open.empty()) {
        partner[at] = open.back() + 1;
        open.pop_back();
      }
    }
    jumps_.assign(text_.size(), kNone);
    for (size_t end = 1; end < text_.size(); ++end) {
      if (partner[end] < 2) continue;  // nothing stands before it
      const size_t close = partner[end] - 2;
      if (text_[close] != ']' || partner[close] == kNone) continue;
      jumps_[partner[close] - 1] = partner[close];  // over the [
      jumps_[close] = end + 1;
    }
  }

  bool take_link() {
    if (jumps_.empty()) return false;
    const bool is_image = text_[at_] == '!' && at_ + 1 < text_.size() && text_[at_ + 1] == '[';
    const size_t jump = jumps_[is_image ? at_ + 1 : at_];
    if (jump == 0) return false;
    at_ = jump;
    return true;
  }

  bool take_code() {
    if (text_[at_] != '`') return false;
    const size_t end = text_.find('`', at_ + 1);
    if (end == std::string_view::npos) return false;
    out_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }

  bool take_escape() {
    if (text_[at_] != '\\' || at_ + 1 == text_.size()) return false;
    if (std::string_view("\\`*_{}[]()#+-.!|<>").find(text_[at_ + 1]) == std::string_view::npos) {
      return false;
    }
    out_ += text_[at_ + 1];
    at_ += 2;
    return true;
  }

  // <b>, </b>; an address in <> stays without these.
  bool take_tag() {
    if (text_[at_] != '<' || at_ + 1 == text_.size()) return false;
    if (!is_letter(text_[at_ + 1]) && text_[at_ + 1] != '/') return false;
    if (tag_end_ < at_) tag_end_ = std::min(text_.find('>', at_), text_.size());
    if (tag_end_ == text_.size()) return false;
    const std::string_view inside = text_.substr(at_ + 1, tag_end_ - at_ - 1);
    if (inside.find(':') < inside.find_first_of(" =\"")) out_ += inside;
    at_ = tag_end_ + 1;
    return true;
  }

  bool take_strong() {
    const std::string_view two = text_.substr(at_, 2);
    if (two != "**" && two != "__" && two != "~~") return false;
    // As in 2 ** 3.
    const bool between_spaces =
        (at_ == 0 || text_[at_ - 1] == ' ') && (at_ + 2 == text_.size() || text_[at_ + 2] == ' ');
    if (between_spaces) return false;
    at_ += 2;
    return true;
  }

  const std::string_view text_;
  std::vector<size_t> jumps_;  // from a bracket of a link to behind what goes with it; else 0
  size_t at_ = 0;
  size_t tag_end_ = 0;  // the next > from some place on
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view markdown) : rest_(markdown) {}

  TitledText run() {
    read_.title = take_front_matter(rest_);
    while (!rest_.empty()) read_line(next_line(rest_));
    read_.text = std::string(trimmed(read_.text));
    if (read_.title.size() > kTitleBytesMax) read_.title.clear();
    return std::move(read_);
  }

 private:
  void read_line(std::string_view line) {
    const std::string_view stripped = trimmed(line);
    if (!fence_.empty()) {
      if (stripped.starts_with(fence_)) {
        fence_ = {};
      } else {
        add(std::string(line));
      }
      return;
    }
    if (in_comment_ || stripped.starts_with("<!--")) {
      in_comment_ = line.find("-->") == std::string_view::npos;
      return;
    }
    if (stripped.starts_with("```") || stripped.starts_with("~~~")) {
      fence_ = stripped.substr(0, 3);
      return;
    }
    if (is_table_rule(stripped) || is_link_definition(stripped)) return;
    if (is_made_of(stripped, '=', 2) || is_made_of(stripped, '-', 2)) {
      // Under a line of text these make it a heading.
      if (!last_.empty()) take_title(last_);
      return end_heading();
    }
    if (is_rule(stripped)) return;
    const size_t marks = std::min(stripped.find_first_not_of('#'), stripped.size());
    if (marks >= 1 && marks <= 6 && (marks == stripped.size() || stripped[marks] == ' ')) {
      std::string_view heading = trimmed(stripped.substr(marks));
      while (heading.ends_with('#')) heading.remove_suffix(1);
      const std::string text = Inline(trimmed(heading)).run();
      take_title(text);
      add(text);
      return end_heading();
    }
    // One empty line parts paragraphs; a heading has put its own.
    if (stripped.empty() && read_.text.ends_with("\n\n")) return;
    add(Inline(line).run());
  }

  void add(std::string line) {
    read_.text += line;
    read_.text += '\n';
    last_ = std::string(trimmed(line));
  }

  void end_heading() {
    read_.text += '\n';
    last_.clear();
  }

  void take_title(const std::string& heading) {
    if (read_.title.empty()) read_.title = heading;
  }

  std::string_view rest_;
  TitledText read_;
  std::string last_;        // the line before, without white space at its ends
  std::string_view fence_;  // what closes the code that we are in
  bool in_comment_ = false;
};

}  // namespace

TitledText read_markdown(std::string_view markdown) { return Reader(markdown).run(); }

}  // namespace ragcache
