#!/usr/bin/env python3
"""Writes common/tokenizer/unicode_tables.inc: the character classes that PyPI tokenizers uses.

    make_unicode_tables.py common/tokenizer/unicode_tables.inc

The library brings Unicode tables of several ages, none of them the system ICU's. Its classes are
asked for code point by code point, so that our ids equal its ids and do not change with ICU.
"""

import sys

import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits

CODE_POINTS = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]


def text_classes():
    """What GPT-2's expression and the digit splitter make of each code point."""
    digits = Digits(individual_digits=True)
    byte_level = ByteLevel(add_prefix_space=False, use_regex=True)
    for code_point in CODE_POINTS:
        c = chr(code_point)
        if len(digits.pre_tokenize_str("a" + c)) == 2:
            yield code_point, "kNumber"
        elif len(byte_level.pre_tokenize_str("a" + c)) == 1:
            yield code_point, "kLetter"
        elif len(byte_level.pre_tokenize_str("!" + c)) == 2:
            yield code_point, "kSpace"


def bert_classes():
    off = dict(handle_chinese_chars=False, lowercase=False)
    clean = BertNormalizer(clean_text=True, strip_accents=False, **off)
    strip = BertNormalizer(clean_text=False, strip_accents=True, **off)
    split = BertPreTokenizer()
    for code_point in CODE_POINTS:
        c = chr(code_point)
        if clean.normalize_str(c) == "":
            yield code_point, "kDropped"
        elif strip.normalize_str(c) == "":
            # A mark that is punctuation too is stripped before words are cut.
            yield code_point, "kMark"
        elif len(split.pre_tokenize_str("x" + c + "y")) == 3:
            yield code_point, "kPunctuation"


def ranges(classes):
    result = []
    for code_point, name in classes:
        # Surrogates are no characters: a range may span them.
        if result and result[-1][2] == name and (
                result[-1][1] + 1 == code_point
                or (result[-1][1] == 0xD7FF and code_point == 0xE000)):
            result[-1][1] = code_point
        else:
            result.append([code_point, code_point, name])
    return result


def write_table(out, enum, name, classes):
    table = ranges(classes)
    out.write(f"constexpr auto {name} = [] {{\n  using enum {enum};\n"
              f"  return std::to_array<Range<{enum}>>({{\n")
    line = "   "
    for first, last, class_name in table:
        cell = f" {{0x{first:x}, 0x{last:x}, {class_name}}},"
        if len(line) + len(cell) > 100:
            out.write(line + "\n")
            line = "   "
        line += cell
    out.write(line + "\n  });\n}();\n")


def main() -> None:
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("// Written by tests/reference/make_unicode_tables.py from PyPI tokenizers "
                  f"{tokenizers.__version__}.\n")
        out.write("// Code points from U+0080 on; what is in no range is kOther.\n")
        out.write("// clang-format off\n")
        write_table(out, "TextClass", "kTextClasses", text_classes())
        write_table(out, "BertClass", "kBertClasses", bert_classes())
        out.write("// clang-format on\n")


if __name__ == "__main__":
    main()
