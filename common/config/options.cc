#include "common/config/options.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"

namespace ragcache {
namespace {

std::string bounds_text(const OptionTraits& traits) {
  constexpr double kUnbounded = 1e18;  // beyond any bound worth printing
  const std::string unit = traits.unit.empty() ? "" : absl::StrCat(" ", traits.unit);
  if (traits.max > kUnbounded) return absl::StrFormat("at least %.10g%s", traits.min, unit);
  return absl::StrFormat("from %.10g to %.10g%s", traits.min, traits.max, unit);
}

}  // namespace

std::string OptionTable::Row::flag() const {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

std::string OptionTable::Row::environment() const {
  return absl::StrCat("RAGCACHE_", absl::AsciiStrToUpper(name));
}

void OptionTable::add_row(const std::string& name, const OptionTraits& traits,
                          std::string default_text, bool is_flag, bool is_number,
                          std::function<absl::Status(const std::string&)> assign) {
  if (Row* row = find(name)) {
    RAG_CHECK(row->default_text == default_text && row->is_flag == is_flag);
    row->assign.push_back(std::move(assign));
    return;
  }
  Row row{name, traits, default_text, default_text, "default", is_flag, is_number, {}};
  row.assign.push_back(std::move(assign));
  rows_.push_back(std::move(row));
}

OptionTable::Row* OptionTable::find(const std::string& name) {
  auto it =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == name; });
  return it == rows_.end() ? nullptr : &*it;
}

absl::Status OptionTable::load(const std::string& file,
                               const std::map<std::string, std::string>& flags) {
  std::vector<std::string> errors;
  if (!file.empty()) {
    try {
      YAML::Node root = YAML::LoadFile(file);
      if (!root.IsNull() && !root.IsMap()) {
        errors.push_back(absl::StrCat(file, ": must be a mapping of options to values"));
      } else {
        for (const auto& item : root) {
          const auto key = item.first.as<std::string>();
          Row* row = find(key);
          if (row == nullptr) {
            errors.push_back(absl::StrCat(file, ": unknown option ", key));
          } else if (!item.second.IsScalar()) {
            errors.push_back(absl::StrCat(file, ": ", key, ": must be a single value"));
          } else {
            row->value_text = item.second.as<std::string>();
            row->source = "file";
          }
        }
      }
    } catch (const YAML::Exception& error) {
      errors.push_back(absl::StrCat(file, ": ", error.what()));
    }
  }
  for (Row& row : rows_) {
    if (const char* value = std::getenv(row.environment().c_str())) {
      row.value_text = value;
      row.source = "environment";
    }
  }
  for (const auto& [name, value] : flags) {
    Row* row = find(name);
    if (row == nullptr) {
      errors.push_back(absl::StrCat("unknown option ", name));
      continue;
    }
    row->value_text = value;
    row->source = "flag";
  }
  for (const Row& row : rows_) {
    for (const auto& assign : row.assign) {
      absl::Status status = assign(row.value_text);
      if (status.ok()) continue;
      errors.push_back(absl::StrCat(status.message(), " (from ", row.source, ")"));
      break;
    }
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

std::string OptionTable::print() const {
  std::string text;
  for (const Row& row : rows_) {
    YAML::Emitter emitter;
    emitter << row.value_text;
    absl::StrAppend(&text, row.name, ": ", emitter.c_str(), "  # ", row.source, "\n");
  }
  return text;
}

std::string OptionTable::to_markdown() const {
  std::string text = "| option | default | values | what |\n|---|---|---|---|\n";
  for (const Row& row : rows_) {
    std::string values;
    if (row.is_flag) {
      values = "true, false";
    } else if (!row.traits.choices.empty()) {
      values = absl::StrJoin(row.traits.choices, ", ");
    } else if (row.is_number) {
      values = bounds_text(row.traits);
    } else {
      values = row.traits.required ? "not empty" : "";
    }
    const std::string shown =
        row.default_text.empty() ? "" : absl::StrCat("`", row.default_text, "`");
    absl::StrAppend(&text, "| `", row.name, "` | ", shown, " | ", values, " | ",
                    absl::StrReplaceAll(row.traits.doc, {{"|", "\\|"}}), " |\n");
  }
  return text;
}

std::string OptionTable::format_number(double value) { return absl::StrFormat("%.10g", value); }

absl::Status OptionTable::parse_string(const std::string& name, const OptionTraits& traits,
                                       const std::string& text, std::string* value) {
  if (traits.required && text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": must be given; ", traits.doc));
  }
  if (!traits.choices.empty() &&
      std::find(traits.choices.begin(), traits.choices.end(), text) == traits.choices.end()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is \"", text, "\", must be one of ",
                                                   absl::StrJoin(traits.choices, ", ")));
  }
  *value = text;
  return absl::OkStatus();
}

absl::Status OptionTable::parse_bool(const std::string& name, const std::string& text,
                                     bool* value) {
  if (absl::SimpleAtob(text, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": is \"", text, "\", must be true or false"));
}

absl::Status OptionTable::parse_number(const std::string& name, const OptionTraits& traits,
                                       const std::string& text, bool integral, double* value) {
  if (absl::SimpleAtod(text, value) && std::isfinite(*value) &&
      (!integral || *value == std::floor(*value)) && *value >= traits.min && *value <= traits.max) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, ": is \"", text, "\", must be ",
                                                 integral ? "a whole number " : "a number ",
                                                 bounds_text(traits)));
}

}  // namespace ragcache
