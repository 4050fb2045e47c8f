#!/usr/bin/env python3
"""references - checks that the files, functions and pages that comments and docs name exist.

    tools/references.py [--root FOLDER]

Reads the comments of all C files and the `code` words of all pages. Reports, as `file:line: what`:

  - a path or file name (`src/sched/step.c`, `sched/step.c`, `step.c`, `docs/design/io.md`) that does not exist
  - a name that begins with fli_, filch_, FLI_ or FILCH_, or is written as `name()`, and is in no code; in pages about
    the code also any other `name_with_underscores`
  - a test (`find_test`, `find_test: name`; in comments find_test: name_of_the_test) that does not exist
  - a mutant (mutant name_of_the_mutant) that tools/mutants.txt does not have
  - a link `page.md#heading` to a heading that the page does not have

docs/log and CHANGELOG.md are left out: they describe the past. A name may end in * (`filch_yield_*`). tools/tidy calls
check(); tools/tidy_test plants one fault of each kind.
"""
import argparse
import os
import re
import sys
from pathlib import Path

CODE = re.compile(r"(src|include|test|bench|examples)/.*\.[ch]$")
BUILD = re.compile(r"(.*/)?CMakeLists\.txt$|cmake/|dev$")
PAGES = re.compile(r"(?!docs/log/|CHANGELOG\.md).*\.md$")
TABLE = "docs/CONFORMANCE.md"  # tidy itself checks the paths and tests of this page
SKIPPED_FOLDERS = re.compile(r"^(\.git|build.*|__pycache__)$")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
FILE = r"(?:[\w{},*-]+/)*[\w{},*-]+\.(?:c|h|md|txt|py|cmake|svg)"
PATH = re.compile(rf"^(?:{FILE}|(?:src|test|include|bench|docs|examples|tools|cmake)/[\w./{{}},*-]*)$")
IN_COMMENT = re.compile(rf"(?<![\w/.<\"-])({FILE})(?![\w/])|\b((?:fli|filch|FLI|FILCH)_\w+\*?)|\b([a-z_]\w+)\(\)")
# In pages about the code, any name with an underscore is one of the code.
PLAIN = re.compile(r"^([a-z]+(?:_[a-z0-9]+)+)$")
CODE_PAGES = re.compile(r"docs/(design/|ARCHITECTURE)")
OURS = re.compile(r"^((?:fli|filch|FLI|FILCH)_\w+\*?)(?:\(.*\))?$|^([a-z_]\w+)\(\)$")
TEST = re.compile(r"^(\w+_(?:test|stress))(?:: (\w+))?$")
# In comments: a program and a name of at least two words; a name that ends in * stands for all that begin like it.
TEST_IN_COMMENT = re.compile(r"\b(\w+_(?:test|stress)):[\s*]+([a-z]+_\w+)")
MUTANT = re.compile(r"\bmutants?[\s*]+`?([a-z0-9]+_\w*\*?)")
# Files and functions of other projects that comments mention.
FOREIGN = {"sched-eevdf.rst", "ltests.h", "lstate.h", "lobject.h", "ldo.c", "lgc.c", "ldebug.c", "lua.h", "linit.c", "stdatomic.h", "threads.h",
           "pthread.h", "errno.h", "signal.h"}


class Names:
    """What exists: paths, file names, and every identifier in code."""

    def __init__(self, root):
        self.root = Path(root)
        self.paths = set()
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if not SKIPPED_FOLDERS.match(f)]
            below = Path(folder).relative_to(self.root).as_posix()
            self.paths.update(f"{below}/{name}" if below != "." else name for name in names + folders)
        self.files = {path.rsplit("/", 1)[-1] for path in self.paths}
        self.words = set()
        for path in self.code():
            # Strings are kept: they name environment variables.
            self.words.update(re.findall(r"\w+", COMMENT_OR_STRING.sub(keep_string, self.text(path))))
        for path in self.paths:
            if BUILD.match(path) and (self.root / path).is_file():
                self.words.update(re.findall(r"\w+", self.text(path)))
        self.sorted_words = sorted(self.words)
        mutants = self.root / "tools/mutants.txt"
        self.mutants = set(re.findall(r"^name: (\w+)", mutants.read_text(), re.M)) if mutants.is_file() else set()

    def text(self, path):
        return (self.root / path).read_text(errors="replace")

    def code(self):
        return sorted(path for path in self.paths if CODE.match(path) and (self.root / path).is_file())

    def pages(self):
        return sorted(path for path in self.paths if PAGES.match(path) and (self.root / path).is_file())

    def has_file(self, name, beside):
        """Returns True if `name` is a path from the root, from src or from the folder `beside`, or the end of a path. It may
    contain * and {a,b}."""
        for one in expand(name.rstrip("/")):
            if "*" in one:
                end = re.compile(r"(.*/)?" + re.escape(one).replace(r"\*", "[^/]*") + "$")
                if not any(end.match(path) for path in self.paths):
                    return False
            elif "/" not in one:
                if one not in self.files and one not in FOREIGN:
                    return False
            elif not any(path in self.paths for path in (one, "src/" + one, os.path.normpath(f"{beside}/{one}"))):
                if not any(path.endswith("/" + one) for path in self.paths):
                    return False
        return True

    def has_test(self, program, test):
        known = any(program + end in self.files for end in ("", ".c", ".py", ".lua")) or program in self.words
        return known and (test is None or test in self.words)

    def has_mutant(self, name):
        return any(mutant == name or name.endswith("*") and mutant.startswith(name[:-1]) for mutant in self.mutants)

    def has_name(self, name):
        """Returns True if code has this name. NAME* and NAME_ stand for all names that begin with NAME."""
        if name.endswith(("*", "_")):
            begin = name.rstrip("*")
            return any(word.startswith(begin) for word in self.sorted_words)
        return name in self.words


def keep_string(found):
    return " " if found[0].startswith("/") else found[0]


def expand(name):
    """a.{c,h} as a.c and a.h."""
    braces = re.search(r"\{([^}]*)\}", name)
    if not braces:
        return [name]
    return [one for choice in braces[1].split(",") for one in expand(name[:braces.start()] + choice + name[braces.end():])]


def slug(heading):
    """The anchor that a heading gets."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(text):
    return {slug(line.lstrip("#")) for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).split("\n")
            if re.match(r"#{1,6} ", line)}


def check_comments(names):
    for path in names.code():
        text = names.text(path)
        for comment in COMMENT_OR_STRING.finditer(text):
            if not comment[0].startswith("/"):
                continue
            for found in IN_COMMENT.finditer(comment[0]):
                number = text.count("\n", 0, comment.start() + found.start()) + 1
                file, name, function = found.groups()
                if file and not names.has_file(file, path.rsplit("/", 1)[0]):
                    yield path, number, f"names a file that does not exist: {file}"
                elif name and not names.has_name(name):
                    yield path, number, f"names what no code has: {name}"
                elif function and not names.has_name(function):
                    yield path, number, f"names a function that no code has: {function}()"
            for found in TEST_IN_COMMENT.finditer(comment[0]):
                if not names.has_test(*found.groups()):
                    number = text.count("\n", 0, comment.start() + found.start(2)) + 1
                    yield path, number, f"names a test that does not exist: {found[1]}: {found[2]}"
            for found in MUTANT.finditer(comment[0]):
                if not names.has_mutant(found[1]):
                    number = text.count("\n", 0, comment.start() + found.start(1)) + 1
                    yield path, number, f"names a mutant that does not exist: {found[1]}"


def unfenced(text):
    """(line number, line) outside of ``` blocks."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield number, line


def check_pages(names):
    for path in names.pages():
        folder = path.rsplit("/", 1)[0] if "/" in path else "."
        for number, line in unfenced(names.text(path)):
            for word in re.findall(r"`([^`]+)`", line):
                word = re.sub(r":\d+$", "", word)
                ours = OURS.match(word) or (CODE_PAGES.match(path) and PLAIN.match(word))
                if PATH.match(word) and not re.search(r"NAME|FILE|ROOM|TOPIC|MODULE", word):
                    if path != TABLE and not names.has_file(word, folder):
                        yield path, number, f"names a file that does not exist: {word}"
                elif test := TEST.match(word):
                    if path != TABLE and not names.has_test(*test.groups()):
                        yield path, number, f"names a test that does not exist: {word}"
                elif ours and not names.has_name(ours[1] or ours[ours.lastindex]):
                    yield path, number, f"names what no code has: {word}"
            for mutant in MUTANT.findall(line):
                if not names.has_mutant(mutant):
                    yield path, number, f"names a mutant that does not exist: {mutant}"
            for page, heading in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", line):
                target = os.path.normpath(f"{folder}/{page}") if page else path
                if "://" not in page and target in names.paths and target.endswith(".md"):
                    if heading not in headings(names.text(target)):
                        yield path, number, f"{target} has no heading #{heading}"


def check(root):
    """(path, line, what) of each finding."""
    names = Names(root)
    return [*check_comments(names), *check_pages(names)]


def main():
    parser = argparse.ArgumentParser(description="checks that what comments and docs name exists")
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent)
    found = sorted(set(check(parser.parse_args().root)))
    print("\n".join(f"{path}:{line}: {what}" for path, line, what in found) or "references: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
