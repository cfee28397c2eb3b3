#include "common/config/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace ragcache {

int report(std::string_view program, const absl::Status& status) {
  if (status.ok()) return kExitDone;
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(program.size()), program.data(),
               std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

std::optional<int> parse_command_line(CLI::App& cli, int argc, char** argv) {
  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return std::nullopt;
}

OptionFlags::OptionFlags(CLI::App& command, OptionTable& table)
    : table_(table),
      command_(command.get_parent() == nullptr
                   ? command.get_name()
                   : command.get_parent()->get_name() + " " + command.get_name()) {
  command.add_option("--config", file_, "YAML file of options");
  command.add_flag("--print-config", print_,
                   "print every option, its value and where that came from, and exit");
  for (const OptionTable::Row& row : table.rows()) {
    const std::string text = absl::StrCat(
        row.traits.doc, row.traits.unit.empty() ? "" : absl::StrCat(" [", row.traits.unit, "]"),
        row.default_text.empty() ? "" : absl::StrCat(" (default ", row.default_text, ")"));
    auto set = [this, name = row.name](const std::string& value) { flags_[name] = value; };
    if (row.is_flag) {
      // Alone it means true.
      command
          .add_option_function<std::string>(
              row.flag(), [set](const std::string& value) { set(value.empty() ? "true" : value); },
              text)
          ->expected(0, 1)
          ->take_last()
          ->option_text("[true|false]");
    } else {
      command.add_option_function<std::string>(row.flag(), set, text)->take_last();
    }
  }
}

std::optional<int> OptionFlags::load() {
  if (absl::Status status = table_.load(file_, flags_); !status.ok()) {
    std::fprintf(stderr, "%s: %s\n", command_.c_str(), std::string(status.message()).c_str());
    return kExitUsage;
  }
  if (!print_) return std::nullopt;
  std::fputs(table_.print().c_str(), stdout);
  return kExitDone;
}

}  // namespace ragcache
