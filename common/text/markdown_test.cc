#include "common/text/markdown.h"

#include <gtest/gtest.h>

namespace ragcache {
namespace {

TEST(Markdown, KeepsWordsAndDropsMarks) {
  const TitledText read = read_markdown(R"(# The **grey** heron #

It [waits](https://example.org/a_(b)) in ![shallow](w.png) water, see [1][ref] and <https://x.org/>.
<!-- not for
readers -->
Some `**code**` and __strong__ \*words\*, 2 ** 3 <br/>.

- one
- two
***
| Year | Count |
|------|------:|
| 1990 | 12    |

```sh
# not a heading
ls [x](y) **z**
```
[ref]: https://example.org
Second
------
The end
)");
  EXPECT_EQ(read.title, "The grey heron");
  EXPECT_EQ(read.text,
            "The grey heron\n\nIt waits in shallow water, see 1 and https://x.org/.\n"
            "Some **code** and strong *words*, 2 ** 3 .\n\n- one\n- two\n"
            "| Year | Count |\n| 1990 | 12    |\n\n# not a heading\nls [x](y) **z**\n"
            "Second\n\nThe end");
}

TEST(Markdown, TakesTheTitleOfTheFrontMatter) {
  const TitledText read =
      read_markdown("---\ntags: [a]\ntitle: \"On: herons\"\n---\n# Other\nText\n");
  EXPECT_EQ(read.title, "On: herons");
  EXPECT_EQ(read.text, "Other\n\nText");
}

TEST(Markdown, TakesAnUnderlinedLineForATitle) {
  EXPECT_EQ(read_markdown("Herons\n======\nText").title, "Herons");
  EXPECT_EQ(read_markdown("Herons\n======\nText").text, "Herons\n\nText");
  EXPECT_EQ(read_markdown("# Herons\n\n\nText").text, "Herons\n\nText");
}

TEST(Markdown, LeavesWhatOnlyLooksLikeMarks) {
  for (const char* text :
       {"a [b] c", "a ](b", "[b](c", "5 < 6", "#hashtag", "snake_case_name", "[^1]: a note"}) {
    const TitledText read = read_markdown(text);
    EXPECT_EQ(read.title, "") << text;
    EXPECT_EQ(read.text, text);
  }
  EXPECT_EQ(read_markdown("---\nno end of it\n").text, "no end of it");
  EXPECT_EQ(read_markdown("").text, "");
}

}  // namespace
}  // namespace ragcache
