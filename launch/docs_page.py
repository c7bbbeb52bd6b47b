"""Runs the blocks of one page of the docs and compares what they print with what is shown. See
launch/docs. A Page starts processes, in folders that the caller makes and takes away."""

import os
import pathlib
import re
import signal
import shlex
import subprocess
import sys

from docs_excerpt import missing_piece
from markdown_blocks import RUN, blocks_of, commands_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN_ID = re.compile(r"\b\d{8}T\d{6}-\d+,?")
RUN_ID_OF_A_LIST = re.compile(r"\b\d{8}T\d{6}-\d+, ")
MOMENT = re.compile(r"\b\d{8}T\d{6}-\d+,?|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+")
# Files one after the other as one program, of which only the last is heard.
IN_ORDER = """
import contextlib, io, sys
names = {"__name__": "__main__"}
for file in sys.argv[1:]:
    quiet, names["__file__"] = file != sys.argv[-1], file
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        exec(compile(open(file).read(), file, "exec"), names)
"""
PYTHONS = ("AMAXSCOPE_TEST_PYTHON", "AMAXSCOPE_PYTHON")
NUMBER = re.compile(r"(?<![A-Za-z_\d.])[-+]?\d[\d.,:e+x-]*%?(?![A-Za-z_])")


def words_of(text, exact):
    text = RUN_ID.sub("", text)
    if not exact:
        text = re.sub(r"iteration (\d+)\b", r"iteration_\1", text)
        text = re.sub(r"(since +)(\d+|iteration_\d+)", r"\1_\2", text)
        text = NUMBER.sub("#", text)
    return text.split()


def same(shown, printed):
    """Whether the words are the same, with `...` for any; a word before `...` may be cut."""
    reach = {0}
    for position, word in enumerate(shown):
        if word == "...":
            reach = set(range(min(reach), len(printed) + 1)) if reach else reach
            continue
        cut = position + 1 < len(shown) and shown[position + 1] == "..."
        reach = {
            at + 1
            for at in reach
            if at < len(printed) and (printed[at] == word or (cut and printed[at].startswith(word)))
        }
    return len(printed) in reach


def fixed(lines):
    """Without what is another in each run."""
    return [MOMENT.sub("", line).rstrip() for line in lines]


def renewed(shown, printed):
    """The lines to show: all that is printed, or where some are left out, those that are shown, with
    today's numbers."""
    lines = [line.rstrip() for line in RUN_ID_OF_A_LIST.sub("", printed).rstrip("\n").split("\n")]
    if "..." not in (line.strip() for line in shown):
        return lines
    result, start = [], 0
    for line in shown:
        found = [
            at
            for at in range(start, len(lines))
            if words_of(lines[at], False) == words_of(line, False)
        ]
        result.append(lines[found[0]] if found and line.strip() else line)
        start = found[0] + 1 if found and line.strip() else start
    return result


def training_text():
    """The same on every machine and whatever becomes of the docs."""
    words = "scale the amax of a tensor is its largest magnitude and every rank has to agree on it"
    words = (words + " before the cast").split()
    state, lines = 1, [""]
    for index in range(3000):
        lines[-1] += words[state // 65536 % len(words)] + " "
        state = (state * 1103515245 + 12345) % 2147483648
        if index % 11 == 10:
            lines.append("")
    return "\n".join(lines)


def write_script(path, text):
    path.write_text("#!/usr/bin/env bash\n" + text.rstrip() + "\n")
    path.chmod(0o755)


def is_run(block, slow):
    """Whether this run looks at it: it runs, or is compared with a file."""
    looks = block.excerpt or (block.language in RUN and not block.not_run)
    return bool(looks) and bool(block.options.get("slow")) == slow


class Page:
    def __init__(self, name, program, scratch):
        self.name = name
        self.path = ROOT / name
        self.text = self.path.read_text()
        self.folder = pathlib.Path(scratch) / name.replace("/", "_")
        self.failures = []
        self.skipped = []
        self.programs = []  # files of the python blocks so far
        self.groups = []  # process groups of what was started
        self.changes = []  # (first line, last line, lines to put there), from 0
        self.prepare(program)

    def prepare(self, program):
        starter = self.folder.with_suffix(".mpirun")  # first in PATH, and not for what it starts
        binaries = self.folder.with_suffix(".bin")
        for folder in (self.folder, starter, binaries):
            folder.mkdir()
        data = self.folder.with_suffix(".text")
        data.write_text(training_text())
        write_script(
            starter / "mpirun", f"""PATH=${{PATH#*:}} exec '{ROOT}/launch/mpirun_local' "$@" """
        )
        write_script(
            binaries / "amaxscope",
            f"""case " $* " in
  *' --data '* | *' --help '*) ;;
  ' train '* | ' sense '*) exec '{program}' "$@" --data '{data}' ;;
esac
exec '{program}' "$@" """,
        )
        python = next(filter(None, map(os.environ.get, PYTHONS)), sys.executable)
        write_script(binaries / "python3", f"exec {shlex.quote(python)} \"$@\"")
        for name in ("launch", "bench", "examples"):
            (self.folder / name).symlink_to(ROOT / name)
        self.link_build(program, binaries)
        self.environment = dict(
            os.environ,
            PATH=f"{starter}:{binaries}:{os.environ['PATH']}",
            HOME=str(self.folder),
            PYTHONPATH=str(self.folder / "build/release/python"),
            OPENBLAS_NUM_THREADS="1",
            AMAXSCOPE_PRESET="release",
            AMAXSCOPE_ROOT=str(ROOT),
            PYTHONDONTWRITEBYTECODE="1",
            NO_COLOR="1",
        )
        self.environment.pop("AMAXSCOPE_PROGRAM", None)

    def link_build(self, program, binaries):
        """build/release is the build of the program, and the program in it the one of this page."""
        build = self.folder / "build/release"
        (build / "launch").mkdir(parents=True)
        (build / "launch/amaxscope").symlink_to(binaries / "amaxscope")
        real = program.parent.parent
        if (real / "CMakeCache.txt").exists():
            for entry in real.iterdir():
                if entry.name != "launch":
                    (build / entry.name).symlink_to(entry)

    def shell(self, command):
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.groups.append(process.pid)
        try:
            out, errors = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            self.end()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, errors)

    def end(self):
        """Of what a page leaves running in the background, nothing is left."""
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def run(self, slow):
        for block in blocks_of(self.name, self.text):
            for command in block.setup:
                result = self.shell(command)
                if result.returncode != 0:
                    self.failures.append(
                        f"{block.place}: setup `{command}` ended with {result.returncode}: {result.stderr}"
                    )
            if not is_run(block, slow) or self.lacks(block):
                continue
            if block.excerpt:
                self.compare(block)
            elif block.language == "yaml":
                self.load(block)
            elif block.language == "python":
                self.python(block)
            else:
                self.console(block)

    def lacks(self, block):
        """Whether a module or a file is missing that the block needs."""
        for name in filter(None, block.options.get("needs", "").split(",")):
            module = "amaxscope._native" if name == "native" else name
            look = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{module}'))"
            if "/" in name and not (self.folder / name).exists():
                self.skipped.append(f"{block.place}: SKIPPED: {name} is not built")
            elif "/" not in name and self.shell(f'python3 -c "{look}"').returncode != 0:
                self.skipped.append(f"{block.place}: SKIPPED: python3 has no {name}")
            else:
                continue
            return True
        return False

    def compare(self, block):
        piece = missing_piece(block.lines, (ROOT / block.excerpt).read_text().split("\n"))
        if piece is not None:
            self.failures.append(
                f"{block.place}: {block.excerpt} does not have these lines:\n" + "\n".join(piece)
            )

    def python(self, block):
        file = self.folder.with_suffix(f".{block.line}.py")
        file.write_text("\n".join(block.lines) + "\n")
        if "after" in block.options:
            self.programs.append(ROOT / block.options["after"])
        self.programs.append(file)
        files = " ".join(shlex.quote(str(program)) for program in self.programs)
        result = self.shell(f"python3 -c {shlex.quote(IN_ORDER)} {files}")
        if result.returncode != int(block.options.get("exit", 0)):
            self.failures.append(
                f"{block.place}: this program ended with {result.returncode}:\n{result.stdout}{result.stderr}"
            )

    def load(self, block):
        lines = block.lines
        if lines and lines[0].startswith(" "):
            lines = [
                "example:",
                "  enabled: True",
                "  layers: {layer_types: [all]}",
                "  transformer_engine:",
            ] + lines
        file = self.folder / block.options.get("file", "block.yaml")
        file.write_text("\n".join(lines) + "\n")
        result = self.shell(f"amaxscope check {file.name}")
        wanted = int(block.options.get("exit", 0))
        if result.returncode != wanted:
            self.failures.append(
                f"{block.place}: `amaxscope check` of this YAML ended with {result.returncode}, not "
                f"{wanted}:\n{result.stdout}{result.stderr}"
            )

    def console(self, block):
        commands = commands_of(block)
        row = block.line  # of the line after the fence, from 0
        for position, (command, shown) in enumerate(commands):
            row += command.count("\n") + 1
            result = self.shell(command)
            wanted = int(block.options.get("exit", 0)) if position == len(commands) - 1 else 0
            if result.returncode != wanted:
                self.failures.append(
                    f"{block.place}: `{command}` ended with {result.returncode}, not {wanted}:\n"
                    f"{result.stdout}{result.stderr}"
                )
            printed = result.stdout or result.stderr
            exact = bool(block.options.get("exact"))
            only = block.options.get("only")
            texts = [
                "\n".join(
                    line
                    for line in lines
                    if not only or any(word in line for word in only.split(","))
                )
                for lines in (shown, printed.split("\n"))
            ]
            if "".join(shown).strip():
                if not same(*(words_of(text, exact) for text in texts)):
                    self.failures.append(
                        f"{block.place}: `{command}` prints something else than is shown:\n{printed}"
                    )
                if not only and fixed(shown) != fixed(new := renewed(shown, printed)):
                    self.changes.append((row, row + len(shown), new))
            row += len(shown)

    def write(self):
        """Whether there was something to write."""
        lines = self.text.split("\n")
        for first, last, new in reversed(self.changes):
            lines[first:last] = new
        text = "\n".join(lines)
        if text != self.text:
            self.path.write_text(text)
        return text != self.text
