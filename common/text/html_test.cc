#include "common/text/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/text/entities.h"

namespace ragcache {
namespace {

using ::testing::HasSubstr;

TEST(Html, MakesParagraphsOfBlocksAndDropsWhatIsNoText) {
  const TitledText read = read_html(R"(<!DOCTYPE html>
<html><head><meta charset="utf-8"><TITLE> Herons &amp;
  other birds</TITLE><style>p { color: red }</style>
<script>if (a < b) document.write("<p>no</p>");</script></head>
<body><nav><ul><li>Home<li>About</ul></nav>
<h1>The <i>grey</i> heron</h1>
<p class="a>b">It waits in   shallow
water.<br>Then it strikes.</p><!-- <p>no</p> -->
<svg><title>no</title><text>no</text></svg>
<pre>  one
    two</pre>
<table><tr><th>Year<th>Count</tr><tr><td>1990</td><td>12&nbsp;000</td></tr></table>
<p>5 < 6 &ne; 7 &copy;</body></html>)");
  EXPECT_EQ(read.title, "Herons & other birds");
  EXPECT_EQ(read.text,
            "- Home\n- About\n\nThe grey heron\n\nIt waits in shallow water.\nThen it strikes.\n\n"
            "  one\n    two\n\nYear Count\n1990 12 000\n\n5 < 6 \u2260 7 \u00a9");
}

TEST(Html, TakesTheFirstHeadingForATitleIfThereIsNone) {
  EXPECT_EQ(read_html("<p>x<h1>One <b>two</b></h1><h1>Three</h1>").title, "One two");
  EXPECT_EQ(read_html("just text").title, "");
}

TEST(Html, TakesATextWithoutTagsForWhatItIs) {
  EXPECT_EQ(read_html("a < b, c<d> e").text, "a < b, c e");
  EXPECT_EQ(read_html("</p>x</div></div>").text, "x");
  EXPECT_EQ(read_html("before<script>never closed").text, "before");
  EXPECT_EQ(read_html("before<p").text, "before");
}

TEST(Html, DropsNestedElementsOfOneName) {
  EXPECT_EQ(read_html("a<object>b<object>c</object>d</object>e").text, "ae");
}

TEST(Html, RefusesOtherCharsetsByName) {
  const auto error = [](std::string_view html) {
    return std::string(check_html_charset(html).message());
  };
  EXPECT_THAT(error("<meta charset=\"ISO-8859-1\">caf\xe9"), HasSubstr("charset iso-8859-1"));
  EXPECT_THAT(
      error("<META http-equiv=Content-Type content='text/html; charset=windows-1251'>\xc3\xa9"),
      HasSubstr("charset windows-1251"));
  EXPECT_EQ(error("<meta charset=\"ISO-8859-1\">cafe"), "");
  EXPECT_EQ(error("<meta charset=UTF-8>caf\xc3\xa9"), "");
  EXPECT_EQ(error("charset=latin1 caf\xc3\xa9"), "");
}

TEST(Entities, DecodesNamesAndNumbersAndLeavesTheRest) {
  EXPECT_EQ(decode_entities("&lt;&amp;lt;&eacute;&#233;&#xE9;&#XE9;&thetasym;&apos;"),
            "<&lt;\u00e9\u00e9\u00e9\u00e9\u03d1'");
  EXPECT_EQ(decode_entities("&#150;&#x80;"), "\u2013\u20ac");
  EXPECT_EQ(decode_entities("&#0;&#xD800;&#x110000;&#99999999;"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  for (const char* none : {"&", "&;", "&#;", "&#x;", "&nosuch;", "&lt", "AT&T", "&#12a;",
                           "&#123456789;", "&veryveryverylong;"}) {
    EXPECT_EQ(decode_entities(none), none);
  }
}

}  // namespace
}  // namespace ragcache
