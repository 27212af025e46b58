"""The lists of mutants: what stands in them, and whether they still apply to the sources."""
import fnmatch
import glob
import json
import os
import re

FIELDS = {"id", "file", "find", "replace", "tests", "cases", "equivalent", "survives", "name", "group", "caught_by"}
NEEDED = ("id", "file", "find", "replace", "tests")
PLANTED = ("name", "group", "caught_by")  # all of them where a chapter's tests plant it, too
LISTS = (("kernels", "chapters/*/tests/planted.json"),
         ("virtual_gpu", "common/workshop/mutants/virtual_gpu.json"))
CASE = re.compile(r'TEST_CASE(?:_FIXTURE)?\(\s*(?:\w+,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)')


class Refused(Exception):
    """A list, or something of this machine, that cannot be worked with; in words."""


def read_lists(root):
    """[(group, mutant)] of all lists of a tree; a group is kernels or virtual_gpu. A chapter's mutant that
    names no tests has those of the chapter."""
    found = []
    for group, pattern in LISTS:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            with open(path, encoding="utf-8") as file:
                try:
                    mutants = json.load(file)["mutants"]
                except (json.JSONDecodeError, KeyError) as error:
                    raise Refused(f"{path}: {error!r}") from None
            chapter = re.match(r"chapters/(\d+)_", os.path.relpath(path, root))
            found += [(group, {"tests": f"chapter{int(chapter[1])}", **mutant} if chapter else mutant)
                      for mutant in mutants]
    return found


def sources_of(root, program):
    """The files with the test cases of a program, as a list calls it."""
    if program == "vgpu_tests":
        return sorted(glob.glob(os.path.join(root, "common/vgpu/tests/*.cpp")))
    if match := re.fullmatch(r"chapter(\d+)(?:_(\w+))?", program):
        folder = os.path.join(root, f"chapters/{int(match[1]):02}_*", "tests")
        found = glob.glob(os.path.join(folder, f"test_{match[2]}.cu" if match[2] else "test.cu"))
        if not match[2]:  # the one program that is linked with the cases in plain C++
            found += sorted(glob.glob(os.path.join(folder, "test_*.cpp")))
        # What the chapters' tests have in common.
        return found + sorted(glob.glob(os.path.join(root, "common/testing/*.*"))) if found else []
    return glob.glob(os.path.join(root, "common/vgpu/tests", program + ".cu"))


def cases_in(path):
    """The test cases in a file: name and text, up to the next one."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = list(CASE.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])): text[match.start():end]
            for match, end in zip(found, ends)}


def matches(name, patterns):
    """Does doctest take a case of that name for --test-case=patterns? It has * and ?, no sets."""
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))
               for pattern in re.split(r"(?<!\\),", patterns))


def apply(text, mutant):
    """A file's text with the mutant in it. Refused where that is not one place."""
    count = text.count(mutant["find"])
    if count != 1:
        raise Refused(f"{mutant['id']}: {mutant['file']} has the text to find {count} times, "
                      f"not once: {mutant['find']!r}")
    return text.replace(mutant["find"], mutant["replace"])


def wrong_fields(mutant):
    """What is wrong with one mutant by itself."""
    name = mutant.get("id", "a mutant without an id")
    for field in NEEDED:
        if not isinstance(mutant.get(field), str) or (not mutant[field] and field != "replace"):
            return [f"{name}: no '{field}'"]
    wrong = [f"{name}: '{field}': no such field" for field in sorted(set(mutant) - FIELDS)]
    if mutant["find"] == mutant["replace"]:
        wrong.append(f"{name}: changes nothing")
    if 0 < sum(field in mutant for field in PLANTED) < len(PLANTED):
        wrong.append(f"{name}: has only some of {', '.join(PLANTED)}")
    for field in ("equivalent", "survives"):
        if field in mutant and len(mutant[field]) < 10:
            wrong.append(f"{name}: {field}, and why?")
    return wrong


def wrong_in(root, listed):
    """What is wrong with the lists: mutants that do not apply, tests that there are not."""
    wrong, seen, texts, names_of = [], set(), {}, {}
    for _, mutant in listed:
        bad = wrong_fields(mutant)
        if bad:
            wrong += bad
            continue
        name = mutant["id"]
        if name in seen:
            wrong.append(f"{name}: twice")
        seen.add(name)
        path = os.path.join(root, mutant["file"])
        if path not in texts:
            if not os.path.isfile(path):
                wrong.append(f"{name}: no file {mutant['file']}")
                continue
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read()
        try:
            apply(texts[path], mutant)
        except Refused as error:
            wrong.append(str(error))
        for program in mutant["tests"].split():
            if program not in names_of:
                names_of[program] = [case for source in sources_of(root, program)
                                     for case in cases_in(source)]
            if not names_of[program]:
                wrong.append(f"{name}: no test program {program}")
        first = names_of[mutant["tests"].split()[0]]
        if first and "cases" in mutant and \
                not any(matches(case, mutant["cases"]) for case in first):
            wrong.append(f"{name}: no test case is called '{mutant['cases']}'")
    return wrong
