#!/usr/bin/env python3
"""Counts the words of prose in lessons.

    count_words.py README.md...

Counted is all that a reader reads as sentences, exercises and further reading too. Left out are headings,
code (indented lines), tables, pictures, what folds away (<details>), what is generated between markers,
and the addresses of links. A word begins with a letter or a digit.
"""
import re
import sys


def prose(text):
    text = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- (counters|gains):begin.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = [line for line in text.split("\n") if not re.match(r"    |\||#", line)]
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", "\n".join(lines))
    return re.sub(r"\]\([^)]*\)", "]", text)


def words(text):
    return len(re.findall(r"[^\W_][\w'’.,/²³-]*", prose(text)))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            print(f"{name}: {words(file.read()):,} words")
