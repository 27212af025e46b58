#!/usr/bin/env python3
"""Keeps chapters/GLOSSARY.md and the lessons' links to it together.

    glossary.py            says what disagrees: a term without a link in the lesson that it names, a link
                           without a term, two links of a lesson to one term, terms out of order
    glossary.py --link     writes the links that lack: at the term's first use in the lesson that it names

A term is a heading `### Bank conflict`, two sentences, and the chapter that shows it. Other words for it
stand in a comment behind the heading: `<!-- also: conflict, conflicts -->`. A lesson may link a term that
names another chapter. Words in headings, tables, code and what folds away are not linked.

Exit status: 0 they agree, 1 they do not, 2 bad usage.
"""
import glob
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
WIDTH = 112
TERM = re.compile(r"^### (?P<name>[^\n<]+?)(?: <!-- also: (?P<also>[^>]*?) -->)?\n\n(?P<text>.*?)"
                  r"(?=^###? |\Z)", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"Shown in\s\[chapter (\d+)\]\(([^)]+)/README\.md\)\.\s*\Z")
LINK = re.compile(r"\[(?P<words>[^\]]*)\]\(\.\./GLOSSARY\.md(?:#(?P<anchor>[^)]*))?\)")


def anchor_of(name):
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


class Term:
    def __init__(self, match):
        self.name, self.text = match["name"].strip(), match["text"].strip()
        self.anchor = anchor_of(self.name)
        self.words = [self.name.strip("`"), *filter(None, re.split(r",\s*", match["also"] or ""))]
        shown = SHOWN.search(self.text)
        self.number, self.folder = (int(shown[1]), shown[2]) if shown else (None, None)
        self.sentences = re.findall(r"[.?!](?=\s|\Z)", SHOWN.sub("", self.text).strip())

    def pattern(self):
        """Its words and their plurals; what is written in capitals is looked for in capitals."""
        parts = []
        for word in self.words:
            name = re.escape(word)
            spaced = re.sub(r"\\ ", r"\\s+", name)
            any_case = f"(?i:{spaced})" if word[1:] == word[1:].lower() and len(word) > 2 else spaced
            parts.append(any_case + r"(?:s|es)?")
        return re.compile(r"(?<![\w`./-])`?(?:" + "|".join(parts) + r")`?(?![\w`]|[.-]\w)")


def terms_of(text):
    return [Term(match) for match in TERM.finditer(text)]


def masked(text, words=()):
    """The lesson with all that is no prose as blanks, so that places stay the same."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    def code(match):
        return match[0] if match[0].strip("`") in words else blank(match)
    for pattern in (r"<details>.*?</details>", r"<!-- (counters|gains):begin.*?<!-- \1:end -->",
                    r"<!--.*?-->"):
        text = re.sub(pattern, blank, text, flags=re.DOTALL)
    text = re.sub(r"^(?:    |\t|#|\||!\[).*$", blank, text, flags=re.MULTILINE)
    text = re.sub(r"!?\[[^\]]*\]\([^)]*\)", blank, text)
    return re.sub(r"`[^`\n]*`", code, text)


def rewrapped(text, place):
    """The paragraph around that place anew, from its line on, where the line has become too long."""
    begin = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    if end - begin <= WIDTH:
        return text
    stop = re.compile(r"\n(?=\s*\n|\s*(?:[-*]|\d+\.) |    |\||<|#)|\Z").search(text, begin).start()
    lines = text[begin:stop].split("\n")
    item = re.match(r"(\s*(?:[-*]|\d+\.) )", lines[0])
    first = item[1] if item else re.match(r" *", lines[0])[0]
    later = " " * len(first)
    words = " ".join(line.strip() for line in lines)[len(first.lstrip()) if item else 0:]
    return text[:begin] + textwrap.fill(words, WIDTH, initial_indent=first, subsequent_indent=later,
                                        break_long_words=False, break_on_hyphens=False) + text[stop:]


def linked(text, term):
    """The lesson with a link at the term's first use, or None where it is not used."""
    found = term.pattern().search(masked(text, term.words))
    if not found:
        return None
    words = f"[{found[0]}](../GLOSSARY.md#{term.anchor})"
    return rewrapped(text[:found.start()] + words + text[found.end():], found.start())


def disagreements(glossary, lessons):
    """What is wrong, a line each. lessons: {number: text}."""
    terms, wrong = terms_of(glossary), []
    anchors = [term.anchor for term in terms]
    names = [term.name.strip("`").casefold() for term in terms]
    headings = len(re.findall(r"^### ", glossary, re.MULTILINE))
    if not terms or headings != len(terms):
        wrong.append(f"{headings} headings, {len(terms)} terms: a blank line stands behind a heading")
    wrong += [f"{after}: stands behind {before}" for before, after in zip(names, names[1:])
              if after <= before]
    for term in terms:
        if term.number is None:
            wrong.append(f"{term.name}: does not end with Shown in [chapter N](folder/README.md).")
        elif term.number not in lessons:
            wrong.append(f"{term.name}: there is no lesson of chapter {term.number}")
        elif f"(../GLOSSARY.md#{term.anchor})" not in lessons[term.number]:
            wrong.append(f"{term.name}: chapter {term.number} does not link it")
        elif not term.folder.startswith(f"{term.number:02}_"):
            wrong.append(f"{term.name}: chapter {term.number} is not in {term.folder}")
        if len(term.sentences) != 2:
            wrong.append(f"{term.name}: {len(term.sentences)} sentences, not two")
    for number, text in sorted(lessons.items()):
        links = list(LINK.finditer(text))
        for link in links:
            if link["anchor"] not in anchors:
                wrong.append(f"chapter {number} links #{link['anchor']}, which is no term")
            elif not terms[anchors.index(link["anchor"])].pattern().fullmatch(
                    re.sub(r"\s+", " ", link["words"])):
                wrong.append(f"chapter {number}: '{link['words']}' is no word for #{link['anchor']}")
        places = [link["anchor"] for link in links]
        wrong += [f"chapter {number} links #{anchor} {places.count(anchor)} times"
                  for anchor in sorted(set(filter(None, places))) if places.count(anchor) > 1]
    return wrong


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    if sys.argv[1:] not in ([], ["--link"]):
        print("usage: glossary.py [--link]", file=sys.stderr)
        return 2
    glossary = read(os.path.join(ROOT, "chapters", "GLOSSARY.md"))
    paths = {int(os.path.basename(os.path.dirname(path))[:2]): path for path in
             glob.glob(os.path.join(ROOT, "chapters", "[0-9][0-9]_*", "README.md"))}
    lessons = {number: read(path) for number, path in paths.items()}
    if sys.argv[1:]:
        for term in terms_of(glossary):
            old = lessons.get(term.number, "")
            new = None if f"#{term.anchor})" in old else linked(old, term)
            if new:
                lessons[term.number] = new
                with open(paths[term.number], "w", encoding="utf-8") as file:
                    file.write(new)
    wrong = disagreements(glossary, lessons)
    print("\n".join(wrong) or f"{len(terms_of(glossary))} terms, each linked from its lesson")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
