#!/usr/bin/env python3
"""Turns Wikipedia leads (JSON) and full articles (wikitext in bz2 XML) into the demo's documents.

Output: JSON lines {"id", "title", "text"}. Articles become plain text, cut at paragraph or sentence
ends into parts of 1,100 to 1,400 characters, about 300 tokens each. Standard library only; the same
inputs give the same bytes.
"""

import argparse
import bz2
import html
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

MAX_LEADS = 400
MAX_PARTS_PER_ARTICLE = 20
MIN_PARTS_PER_ARTICLE = 3
PART_MIN_CHARS = 1100
PART_MAX_CHARS = 1400
LAST_PART_MIN_CHARS = 700
LIST_ITEM_MIN_CHARS = 120
MAX_NESTING = 40

SKIPPED_SECTIONS = {
    "see also", "references", "external links", "further reading", "notes", "bibliography",
    "sources", "citations", "footnotes", "gallery", "works cited", "notes and references",
    "references and notes", "notes and citations", "general references", "filmography",
    "publications", "works", "awards and honors", "discography", "printed sources",
    "explanatory notes", "informational notes", "list of works", "selected works",
}
# Elements whose content is no running text.
DROPPED_ELEMENTS = ("ref", "math", "gallery", "timeline", "imagemap", "score", "chem", "pre",
                    "syntaxhighlight", "source", "code", "table", "noinclude", "hiero", "graph")
# Templates that stand for one of their arguments, by its position.
TEXT_TEMPLATES = {
    "lang": 2, "transl": -1, "transliteration": -1, "nowrap": 1, "nobr": 1, "quote": 1,
    "blockquote": 1, "abbr": 1, "nobold": 1, "small": 1, "big": 1, "em": 1, "strong": 1, "tooltip": 1,
    "linktext": 1, "wikt-lang": 2, "lang-la": 1, "lang-el": 1, "lang-fr": 1, "lang-de": 1,
    "lang-ar": 1, "lang-es": 1, "lang-grc": 1, "lang-pt": 1, "lang-ru": 1, "smallcaps": 1, "sic": 1,
    "not a typo": 1, "keypress": 1, "mono": 1, "code": 1, "var": 1, "math": 1, "mvar": 1, "ill": 1,
    "interlanguage link": 1, "visible anchor": 1, "vanchor": 1, "format price": 1, "as of": 0,
    "us$": 1, "centuries": 1, "angbr": 1, "angle bracket": 1, "script": 2, "nihongo": 1, "gaps": 1,
    "angbr ipa": 1, "sup": 1, "sub": 1, "chem": 0, "chem2": 1, "su": 0, "uss": 0,
}
DASH_TEMPLATES = {"ndash", "snd", "spnd", "spaced ndash", "mdash", "spaced mdash", "emdash", "–",
                  "—", "dash", "en dash", "em dash", "snds", "spaced en dash"}

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
EMPTY_ELEMENT = re.compile(r"<(?:%s)\b[^<>]*/>" % "|".join(DROPPED_ELEMENTS), re.IGNORECASE)
ELEMENT = re.compile(r"<(%s)\b[^<>]*>.*?</\1\s*>" % "|".join(DROPPED_ELEMENTS),
                     re.DOTALL | re.IGNORECASE)
TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
EXTERNAL_LINK = re.compile(r"\[(?:https?:)?//[^\s\]]+\s*([^\]]*)\]")
BARE_URL = re.compile(r"\bhttps?://\S+")
TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
HEADING = re.compile(r"^(={2,6})\s*(.*?)\s*\1\s*$")
LINK_NAMESPACES = re.compile(
    r"^:?(?:file|image|category|media|template|wikipedia|portal|[a-z]{2,3}|[a-z]{2,3}-[a-z-]+|simple)"
    r"\s*:", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9])")
# A full stop after one of these ends no sentence.
ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|St|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|Gen|Col|Lt|Capt|Gov|Sen|Rep|Rev|Hon|vs|etc|ca|c|cf|fl|"
    r"No|Vol|pp|approx|i\.e|e\.g|U\.S|B\.C|A\.D)\.)\s+$")


def template_text(body):
    """What a reader sees of one innermost template; most are boxes, notes and navigation."""
    arguments = [argument.strip() for argument in body.split("|")]
    name = arguments[0].lower().replace("_", " ").strip()
    plain = [a for a in arguments[1:] if not re.match(r"^[\w -]+\s*=", a)]
    plain += [a.split("=", 1)[1].strip() for a in arguments[1:] if re.match(r"^1\s*=", a)]
    if name in DASH_TEMPLATES:
        return " – "
    if name in ("convert", "cvt") and len(plain) >= 2:
        if len(plain) >= 4 and plain[1] in ("-", "–", "to", "and", "x", "by", "or"):
            joint = "–" if plain[1] in ("-", "–") else f" {plain[1]} "
            return f"{plain[0]}{joint}{plain[2]} {unit_text(plain[3])}"
        return f"{plain[0]} {unit_text(plain[1])}"
    if name in ("circa", "c.", "ca."):
        return f"c. {plain[0]}" if plain else "c."
    if name in ("frac", "sfrac", "fraction") and plain:
        if len(plain) == 3:
            return f"{plain[0]} {plain[1]}/{plain[2]}"
        return "/".join(plain[:2]) if len(plain) == 2 else f"1/{plain[0]}"
    if name in ("val", "formatnum") and plain:
        unit = [a.split("=", 1)[1].strip() for a in arguments[1:] if re.match(r"^ul?\s*=", a)]
        return " ".join([plain[0], *unit])
    if name.startswith("formatnum:"):
        return arguments[0][len("formatnum:"):]
    if name == "as of" and plain:
        return "As of " + " ".join(reversed([a for a in plain if a.isdigit()]))
    if name in ("chem", "su"):
        return "".join(plain)
    if name in ("uss", "hms", "ss"):
        return " ".join([arguments[0].upper(), *plain[:1]])
    position = TEXT_TEMPLATES.get(name)
    if position is None and name.startswith("lang-"):
        position = 1
    if position is None or not plain:
        return ""
    if position > len(plain):
        return plain[-1]
    return plain[position - 1 if position > 0 else position]


def unit_text(unit):
    names = {"sqmi": "square miles", "sqkm": "km²", "km2": "km²", "m2": "m²", "C": "°C", "F": "°F",
             "K": "K", "mi": "miles", "ft": "feet", "in": "inches", "lb": "pounds", "nmi":
             "nautical miles", "acre": "acres", "ha": "hectares", "g/cm3": "g/cm³", "mph": "mph"}
    return names.get(unit, unit.replace("2", "²").replace("3", "³"))


def link_text(body):
    target, _, rest = body.partition("|")
    if LINK_NAMESPACES.match(target.strip()):
        return ""
    return (rest.rpartition("|")[2] if rest else target.strip().lstrip(":")).strip()


def repeat(pattern, replace, text):
    """Replaces innermost matches until none is left, at most MAX_NESTING levels deep."""
    for _ in range(MAX_NESTING):
        text, count = pattern.subn(replace, text)
        if not count:
            break
    return text


def plain_paragraphs(wikitext):
    """Returns the article's running text, one string per paragraph."""
    text = COMMENT.sub("", wikitext)
    text = EMPTY_ELEMENT.sub("", text)
    text = repeat(ELEMENT, "", text)
    text = repeat(TEMPLATE, lambda match: template_text(match.group(1)), text)
    text = repeat(TABLE, "", text)
    text = repeat(LINK, lambda match: link_text(match.group(1)), text)
    text = EXTERNAL_LINK.sub(r"\1", text)
    text = BARE_URL.sub("", text)
    text = re.sub(r"<br\s*/?>", " ", text, flags=re.IGNORECASE)
    text = TAG.sub("", text)
    text = html.unescape(html.unescape(text)).replace("\u00a0", " ").replace("\u200b", "")
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"__[A-Z]+__", "", text)

    paragraphs = []
    skipped_level = 0
    for line in text.split("\n"):
        heading = HEADING.match(line.strip())
        if heading:
            level = len(heading.group(1))
            if skipped_level and level > skipped_level:
                continue
            skipped_level = level if heading.group(2).strip().lower() in SKIPPED_SECTIONS else 0
            continue
        if skipped_level:
            continue
        paragraph = tidy(line)
        if paragraph:
            paragraphs.append(paragraph)
    return paragraphs


def tidy(line):
    """One line of text without list marks and what templates left behind, or nothing."""
    is_item = bool(re.match(r"^[*#:;]", line))
    line = re.sub(r"^[*#:;\s]+", "", line).strip()
    if not line or line[0] in "|!{}" or "{{" in line or "}}" in line or "[[" in line:
        return ""
    line = re.sub(r"\(\s*(?:[;,:–/]|or|and|in)*\s*\)", "", line)
    line = re.sub(r"\(\s*[;,:]\s*", "(", line)
    line = re.sub(r"\s*[;,:]\s*\)", ")", line)
    line = re.sub(r"\s+([,.;:!?)])", r"\1", line)
    line = re.sub(r"([(])\s+", r"\1", line)
    line = re.sub(r",(?:\s*,)+", ",", line)
    line = re.sub(r"\s+", " ", line).strip()
    if len(line) < (LIST_ITEM_MIN_CHARS if is_item else 40):
        return ""
    # Captions and rows of tables end without a full stop.
    return line if re.search(r"[.!?:][\"'”’)\]]*$", line) else ""


def sentences(paragraph):
    start = 0
    for match in SENTENCE_END.finditer(paragraph):
        if ABBREVIATION.search(paragraph, start, match.end()):
            continue
        yield paragraph[start:match.end()].strip()
        start = match.end()
    if start < len(paragraph):
        yield paragraph[start:].strip()


def bounded_pieces(sentence):
    """The sentence, cut at spaces where it alone is longer than a part may be."""
    while len(sentence) > PART_MAX_CHARS:
        cut = sentence.rfind(" ", 0, PART_MAX_CHARS)
        cut = cut if cut > 0 else PART_MAX_CHARS
        yield sentence[:cut]
        sentence = sentence[cut:].strip()
    if sentence:
        yield sentence


def cut_into_parts(paragraphs):
    """Packs sentences into parts, ending each at a paragraph's end where one lies in the range."""
    parts, current = [], ""
    for paragraph in paragraphs:
        joint = "\n" if current else ""
        for sentence in sentences(paragraph):
            for piece in bounded_pieces(sentence):
                if current and len(current) + len(joint) + len(piece) > PART_MAX_CHARS:
                    parts.append(current)
                    current, joint = "", ""
                current += joint + piece
                joint = " "
        if len(current) >= PART_MIN_CHARS:
            parts.append(current)
            current = ""
    if len(current) >= LAST_PART_MIN_CHARS:
        parts.append(current)
    return parts


def read_articles(path):
    """Yields (title, wikitext) of the dump's articles, redirects and lists of names left out."""
    title, text, is_redirect = "", "", False
    with bz2.open(path) as dump:
        for _, element in ElementTree.iterparse(dump):
            tag = element.tag.rpartition("}")[2]
            if tag == "title":
                title = element.text or ""
            elif tag == "redirect":
                is_redirect = True
            elif tag == "text":
                text = element.text or ""
            elif tag == "page":
                if not is_redirect and "(disambiguation)" not in title and \
                        not title.startswith("List of "):
                    yield title, text
                is_redirect = False
                element.clear()


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def article_documents(path):
    for title, wikitext in read_articles(path):
        parts = cut_into_parts(plain_paragraphs(wikitext))
        if len(parts) < MIN_PARTS_PER_ARTICLE:
            continue
        for number, text in enumerate(parts[:MAX_PARTS_PER_ARTICLE], 1):
            yield {"id": f"{slug(title)}-{number}", "title": f"{title} (part {number})", "text": text}


def lead_documents(path, titles_taken):
    """MAX_LEADS leads spread evenly over the file, which is ordered by topic."""
    leads = [lead for lead in json.loads(path.read_text(encoding="utf-8")).values()
             if lead["title"] not in titles_taken and len(lead["extract"]) >= 200]
    step = max(1, len(leads) // MAX_LEADS)
    for lead in leads[::step][:MAX_LEADS]:
        yield {"id": f"lead-{slug(lead['title'])}", "title": lead["title"],
               "text": re.sub(r"\s+", " ", lead["extract"]).strip()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True,
                        help="folder with enwiki-articles.xml.bz2 and wiki_summaries.json")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines to write")
    options = parser.parse_args()

    articles = list(article_documents(options.data / "enwiki-articles.xml.bz2"))
    titles = {document["title"].rpartition(" (part ")[0] for document in articles}
    leads = list(lead_documents(options.data / "wiki_summaries.json", titles))

    documents = {}
    for document in articles + leads:
        documents.setdefault(document["id"], document)
    temporary = options.output.with_suffix(".tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        for document in documents.values():
            out.write(json.dumps(document, ensure_ascii=False) + "\n")
    os.replace(temporary, options.output)
    print(f"documents: {len(articles)} parts of {len(titles)} articles and {len(leads)} leads, "
          f"{sum(len(d['text']) for d in documents.values()) / 1e6:.1f} million characters")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"prepare_documents: {error}")
