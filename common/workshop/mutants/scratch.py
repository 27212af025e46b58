"""Scratch copies of the tree, with what was built, in which mutants are built and run."""
import os
import re
import shutil
import signal
import subprocess
import time

from lists import Refused, apply

# Where nvcc, ptxas or g++ refuse a mutant because something looks after it.
ASSERTED = re.compile(r"static assertion failed|static_assert|ptxas error|too much shared data",
                      re.IGNORECASE)


class Run:
    """What became of one program."""

    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds

    @property
    def timed_out(self):
        return self.status is None

    def cases(self):
        """How many test cases ran."""
        found = re.findall(r"^\[doctest\] test cases: +(\d+)", self.output, re.MULTILINE)
        return int(found[-1]) if found else 0

    def failed_case(self):
        """The first test case that failed, or how the program ended."""
        case = None
        for line in self.output.splitlines():
            # In front of the first thing that a case says, be that a failure or not.
            if line.startswith("TEST CASE:  "):
                case = line.removeprefix("TEST CASE:  ").strip()
            elif case and "ERROR: " in line:
                return case
        return f"exit status {self.status}"


def run(command, folder, limit, environment=None):
    """Runs a command in a process group of its own, which ends with it."""
    start = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status = None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    return Run(status, output.decode("utf-8", "replace"), time.monotonic() - start)


def in_place_of(root):
    """What stands in front of a command and the copy's folder, so that the command finds the copy where
    the tree is: line information has absolute paths, and tests expect them below the working folder.
    It mounts for that one process alone. [] where the machine does not allow it."""
    script = 'copy=$1 && shift && mount --bind "$copy" "$ROOT" && cd "$ROOT" && exec "$@"'
    for flags in ("-m", "-rm"):
        prefix = ["env", "ROOT=" + root, "unshare", flags, "sh", "-c", script, "sh"]
        try:
            if run([*prefix, root, "true"], root, 60).status == 0:
                return prefix
        except OSError:
            break
    return []


class Scratch:
    """One copy. `original` is the tree, or a copy that nobody changes; `prefix` of in_place_of."""

    def __init__(self, original, folder, build, prefix):
        self.original, self.folder, self.build = original, folder, build
        self.prefix = [*prefix, folder] if prefix else []

    def run(self, command, limit):
        return run([*self.prefix, *command], self.folder, limit)

    def make(self, leave_out):
        """Copies the tree with all times, so that make finds nothing to do."""
        def ignore(folder, names):
            here = os.path.relpath(folder, self.original)
            return [name for name in names
                    if name in (".git", "__pycache__") or os.path.join(here, name) in leave_out]
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.original, self.folder, symlinks=True,
                        ignore=lambda folder, names: ignore(folder, names))

    def path(self, name):
        return os.path.join(self.folder, name)

    def plant(self, mutant):
        with open(self.path(mutant["file"]), encoding="utf-8") as file:
            text = apply(file.read(), mutant)
        self.mark = time.time_ns()
        with open(self.path(mutant["file"]), "w", encoding="utf-8") as file:
            file.write(text)

    def restore(self, mutant):
        """The source, and all that was built since, as they were."""
        shutil.copy2(os.path.join(self.original, mutant["file"]), self.path(mutant["file"]))
        for folder, _, names in os.walk(self.path(self.build)):
            for name in names:
                path = os.path.join(folder, name)
                if os.lstat(path).st_mtime_ns < self.mark - 10**9 or os.path.islink(path):
                    continue
                before = os.path.join(self.original, os.path.relpath(path, self.folder))
                os.remove(path)
                if os.path.exists(before):
                    shutil.copy2(before, path)

    def compile(self, command, targets, limit):
        """None, "build" where an assertion stopped it, Refused where it is no program."""
        done = self.run([*command, *targets], limit)
        if done.status == 0:
            return None
        if done.timed_out:
            raise Refused(f"building takes longer than {limit} s")
        if ASSERTED.search(done.output):
            return "build"
        words = [line for line in done.output.splitlines() if "error" in line.lower()]
        raise Refused("does not compile: " + (words or done.output.splitlines() or [""])[0][:200])
