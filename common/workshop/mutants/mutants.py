#!/usr/bin/env python3
"""Mutation testing: plants each mistake of the lists in a copy of the tree and sees which test fails.

    mutants.py --make COMMAND --folders VGPU DEVICE [options]

COMMAND is make with the variables of this build (its objects are used again); the folders are those
of the test programs. `make mutants` calls this. For each mutant of the lists (lists.py):
what it changes is built; the test cases that the list names run first, then the programs that it
names, then all others of the group, until one fails. A mutant is

    killed       by that case, by "build" (a static_assert, ptxas' limits) or by "timeout"
    survived     all passed
    equivalent   as the list says, with the reason: it is not run
    error        it does not apply or is no program: a mistake in the list

Results stay in RESULTS, with a hash of what they depend on: the file with the mutant in it and, of a
killed one, the test case that killed it; of a survivor all tests and sources. A run leaves out what
would only be repeated. Exit status: 0 done, 1 errors in the lists, 2 bad input.
"""
import argparse
import concurrent.futures
import fnmatch
import glob
import hashlib
import json
import os
import queue
import sys
import threading
import time

from lists import Refused, apply, cases_in, read_lists, sources_of, wrong_in
from report import refresh, score_line
from scratch import Scratch, in_place_of

HERE = os.path.dirname(os.path.abspath(__file__))
# Test cases that test other tests: they read the kernels' sources, which a mutant changes.
NOT_COUNTED = {"kernels": "planted bugs*,*: planted bugs*", "virtual_gpu": ""}
BUILD_LIMIT = 1200  # seconds


def digest(*parts):
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else part.encode())
        hashed.update(b"\0")
    return hashed.hexdigest()[:16]


def content(path):
    with open(path, "rb") as file:
        return file.read()


class Tree:
    """The sources as they are, and the hashes that results depend on."""

    def __init__(self, root):
        self.root, self.hashes, self.cases = root, {}, {}

    def all_of(self, *patterns):
        if patterns not in self.hashes:
            paths = sorted({path for pattern in patterns
                            for path in glob.glob(os.path.join(self.root, pattern), recursive=True)
                            if os.path.isfile(path)})
            self.hashes[patterns] = digest(*map(content, paths))
        return self.hashes[patterns]

    def everything(self, group, mutant):
        """All that may decide whether a mutant survives."""
        if group == "kernels":
            return self.all_of("/".join(mutant["file"].split("/")[:2]) + "/**/*.cu*", "common/*.cuh",
                               "common/tile/*.cuh", "common/testing/*", "common/vgpu/*/*.cpp")
        return self.all_of("common/vgpu/**/*.cpp", "common/vgpu/**/*.cu", "common/vgpu/**/*.h",
                           "common/vgpu/**/*.def")

    def code(self, mutant):
        with open(os.path.join(self.root, mutant["file"]), encoding="utf-8") as file:
            return digest(apply(file.read(), mutant), mutant["tests"])

    def killer(self, program, case):
        """Of the text of that test case. A build that fails or hangs depends on none."""
        for path in sources_of(self.root, program):
            if path not in self.cases:
                self.cases[path] = cases_in(path)
            if case in self.cases[path]:
                return digest(self.cases[path][case])
        return ""


class Programs:
    """Test programs: where they are, and how they behave without a mutant."""

    def __init__(self, pristine, folders, make):
        self.pristine, self.make = pristine, make
        self.vgpu, self.device = folders
        self.known, self.locks, self.lock = {}, {}, threading.Lock()

    def path(self, program):
        if program == "vgpu_tests":
            return os.path.join(self.vgpu, program)
        if program.startswith("chapter"):
            return os.path.join(self.device, "test_" + program)
        return os.path.join(self.vgpu, "tests", program)

    def needs(self, program):
        """What make must build before the whole program can run."""
        if program.startswith("chapter"):
            return [self.path(program), os.path.join(self.device, program.split("_")[0])]
        return [self.path(program), os.path.join(self.vgpu, "libvgpu.so"),
                os.path.join(self.vgpu, "vgpu")]

    def of_group(self, group, mutant):
        """All programs that may kill a mutant: first those that the list names."""
        named = mutant["tests"].split()
        if group == "kernels":
            folder = os.path.join(*mutant["file"].split("/")[:2])
            chapter = str(int(os.path.basename(folder)[:2]))
            others = ["chapter" + chapter] + [
                f"chapter{chapter}_{os.path.basename(path)[5:-3]}"
                for path in sorted(glob.glob(os.path.join(
                    self.pristine.folder, folder, "tests", "test_*.cu")))]
        else:
            others = ["vgpu_tests"] + [os.path.basename(path)[:-3] for path in sorted(
                glob.glob(os.path.join(self.pristine.folder, "common/vgpu/tests/*.cu")))]
        return named + [program for program in others if program not in named]

    def command(self, group, program, cases):
        command = [os.path.join(".", self.path(program)), "--no-colors", "--abort-after=1"]
        if cases:
            command.append("--test-case=" + cases)
        if NOT_COUNTED[group]:
            command.append("--test-case-exclude=" + NOT_COUNTED[group])
        return command

    def seconds(self, group, program, cases):
        """How long it takes without a mutant. Refused where it fails already."""
        key = (group, program, cases)
        with self.lock:
            own = self.locks.setdefault(key, threading.Lock())
        with own:
            if key not in self.known:
                done = self.pristine.run(self.command(group, program, cases), 1200)
                if done.status != 0:
                    self.known[key] = Refused(f"{program} fails without a mutant: " +
                                              done.failed_case())
                elif done.cases() == 0:
                    self.known[key] = Refused(f"{program}: no test case is called '{cases}'")
                else:
                    self.known[key] = done.seconds
        if isinstance(self.known[key], Refused):
            raise self.known[key]
        return self.known[key]

    def limit(self, group, program, cases):
        return 60 + 8 * self.seconds(group, program, cases)


def try_out(scratch, programs, group, mutant, quick):
    """(verdict, who killed it) of one mutant that is planted."""
    named = mutant["tests"].split()
    stages = [(named[0], mutant["cases"], programs.needs(named[0])[:1])] if "cases" in mutant else []
    if not (quick and stages):
        stages += [(program, "", programs.needs(program))
                   for program in programs.of_group(group, mutant)]
    for program, cases, needs in stages:
        limit = programs.limit(group, program, cases)
        if stopped := scratch.compile(programs.make, needs, BUILD_LIMIT):
            return "killed", stopped
        done = scratch.run(programs.command(group, program, cases), limit)
        if done.timed_out:
            return "killed", f"{program}: timeout"
        if done.status != 0:
            return "killed", f"{program}: {done.failed_case()}"
    return "survived", "only its cases ran" if quick else ""


class Session:
    """All that the workers share."""

    def __init__(self, options, root):
        self.options, self.root, self.tree = options, root, Tree(root)
        self.build = options.build
        self.lock, self.done, self.todo = threading.Lock(), 0, queue.Queue()
        self.results, self.lived = {}, {}  # lived: what a quick run did not see killed
        if os.path.exists(options.results):
            with open(options.results, encoding="utf-8") as file:
                self.results = {entry["id"]: entry for entry in json.load(file)["mutants"]}

    def still_true(self, group, mutant):
        """Does a recorded result hold for the tree as it is?"""
        before = self.results.get(mutant["id"])
        if self.options.fresh or not before or before["verdict"] == "error":
            return False
        if before.get("code") != self.tree.code(mutant):
            return False
        if before["verdict"] == "survived":
            return before["depends"] == self.tree.everything(group, mutant)
        program, _, case = before["by"].partition(": ")
        return before["depends"] == self.tree.killer(program, case)

    def record(self, group, mutant, verdict, by, seconds):
        entry = {"id": mutant["id"], "group": group, "file": mutant["file"], "verdict": verdict}
        if verdict == "killed":
            program, _, case = by.partition(": ")
            entry |= {"by": by, "code": self.tree.code(mutant),
                      "depends": self.tree.killer(program, case)}
        elif verdict == "survived":
            entry |= {"code": self.tree.code(mutant),
                      "depends": self.tree.everything(group, mutant)}
            if "survives" in mutant:
                entry["why"] = mutant["survives"]
        else:
            entry["why"] = by
        with self.lock:
            self.done += 1
            print(f"[{self.done}/{self.count}] {mutant['id']}: {verdict}{', ' if by else ''}{by} "
                  f"({seconds:.0f} s)", flush=True)
            if verdict == "killed" or not self.options.quick:
                self.results[mutant["id"]] = entry
                self.save()
            else:
                self.lived[mutant["id"]] = entry

    def save(self):
        with open(self.options.results + ".new", "w", encoding="utf-8") as file:
            entries = sorted(self.results.values(), key=lambda e: (e["group"], e["id"]))
            file.write('{"mutants":[\n' + ",\n".join(map(json.dumps, entries)) + "\n]}\n")
        os.replace(self.options.results + ".new", self.options.results)

    def work(self, scratch, programs):
        while True:
            try:
                group, mutant = self.todo.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            try:
                scratch.plant(mutant)
                try:
                    verdict, by = try_out(scratch, programs, group, mutant, self.options.quick)
                finally:
                    scratch.restore(mutant)
            except Refused as error:
                verdict, by = "error", str(error)
            self.record(group, mutant, verdict, by, time.monotonic() - start)

    def run(self, listed):
        """Runs what is left to do. The names of mutants that are mistakes."""
        ids = {mutant["id"] for _, mutant in listed}
        self.results = {key: value for key, value in self.results.items() if key in ids}
        todo = []
        for group, mutant in listed:
            if self.options.only and not any(fnmatch.fnmatch(mutant["id"], pattern) or
                                             fnmatch.fnmatch(mutant["file"], pattern)
                                             for pattern in self.options.only.split()):
                continue
            if "equivalent" in mutant:
                self.results[mutant["id"]] = {"id": mutant["id"], "group": group,
                                              "file": mutant["file"], "verdict": "equivalent",
                                              "why": mutant["equivalent"]}
            elif not self.still_true(group, mutant):
                todo.append((group, mutant))
            elif self.results[mutant["id"]]["verdict"] == "survived" and "survives" in mutant:
                self.results[mutant["id"]]["why"] = mutant["survives"]
        # Headers last, since much is compiled anew.
        for entry in sorted(todo, key=lambda e: (not e[1]["file"].endswith(".cpp"), e[1]["file"])):
            self.todo.put(entry)
        self.count = len(todo)
        print(f"{self.count} mutants to run, {len(self.results)} results are there", flush=True)
        if self.count:
            self.run_all(min(self.options.jobs, self.count))
        self.save()
        return [key for key, value in (self.results | self.lived).items()
                if value["verdict"] == "error"]

    def run_all(self, jobs):
        folder = os.path.join(self.build, "mutants")
        leave_out = {os.path.normpath(folder)}
        prefix = in_place_of(self.root)
        if not prefix:
            print("mounts are not allowed here: tests that look at paths may fail without a mutant",
                  file=sys.stderr)
        pristine = Scratch(self.root, os.path.join(self.root, folder, "pristine"), self.build,
                           prefix)
        pristine.make(leave_out)
        self.tree = Tree(pristine.folder)  # what is run, whatever becomes of the tree meanwhile
        programs = Programs(pristine, self.options.folders, self.options.make.split())
        copies = [Scratch(pristine.folder, os.path.join(self.root, folder, str(i)), self.build,
                          prefix) for i in range(jobs)]
        for copy in copies:
            copy.make(set())
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(self.work, copy, programs) for copy in copies]:
                done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", required=True, help="make with this build's variables")
    parser.add_argument("--folders", nargs=2, required=True, help="of vgpu_tests, of test_chapterN")
    parser.add_argument("--build", default="build", help="folder of all that is built")
    parser.add_argument("--results", default="data/results/mutants.json")
    parser.add_argument("--readme", default=os.path.join(HERE, "README.md"))
    parser.add_argument("--only", default="", help="patterns of ids or files, between blanks")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fresh", action="store_true", help="repeat what is known")
    parser.add_argument("--quick", action="store_true",
                        help="only the cases that the list names; who lives is not recorded")
    options = parser.parse_args()
    root = os.getcwd()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        os.environ.pop(name, None)
    try:
        listed = read_lists(root)
        if wrong := wrong_in(root, listed):
            raise Refused("\n".join(wrong))
        session = Session(options, root)
        mistakes = session.run(listed)
    except Refused as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if options.quick:
        for entry in session.lived.values():
            print(f"{entry['id']}: {entry['verdict']} {entry.get('why', '')}")
        return 1 if mistakes else 0
    refresh(options.readme, listed, session.results.values())
    print(score_line(session.results.values()))
    for name in mistakes:
        print(f"mutants: {name}: {session.results[name]['why']}", file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
