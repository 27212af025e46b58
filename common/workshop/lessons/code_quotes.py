"""Quoted code in a lesson.

Indented lines that end in a semicolon are quotes: they must stand in kernel.cuh beside the README, or
in another .cuh of the chapter's steps or of a folder that is a part of the chapter.
"""
import glob
import os
import re


def stray_quotes(text, kernel):
    """Quoted lines of code (indented, ending as a statement does) that do not stand in a kernel."""
    def spaced(code):
        return " ".join(code.split())
    quotes = re.findall(r"^    (.*;(?: *//.*)?)$", text, re.MULTILINE)
    return [quote for quote in quotes if spaced(quote) not in spaced(kernel)]


def kernel_text(folder):
    """All .cuh files of a chapter's steps and of its parts: not those of its exercises."""
    names = sorted(name for pattern in ("*.cuh", "*/*.cuh")
                   for name in glob.glob(pattern, root_dir=folder)
                   if not name.startswith("exercise/"))
    text = ""
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text += file.read() + "\n"
    return text
