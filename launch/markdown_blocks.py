"""The fenced blocks of a Markdown page, with what the comments before them tell launch/docs. No
output, no side effects."""

import dataclasses
import pathlib
import re

DIRECTIVE = re.compile(r"^<!-- (run|not run|setup): (.*) -->$")
# Pages whose commands other tests run, and which.
ELSEWHERE = {
    "docs/c_api.md": "tests/capi (c_example) builds and runs the trainer of this page",
    "docs/package.md": "tests/package installs and uses what this page shows",
    "docs/python.md": "tests/python",
    "docs/python_data.md": "tests/python",
    "docs/dlfw_inspect.md": "tests/python",
    "docs/cuda.md": "tests/device and tests/emulator",
    "docs/nccl.md": "tests/collectives",
    "docs/performance.md": "measured by hand on a quiet machine; bench/ has the programs",
    "docs/performance-gpu.md": "no device has run this yet",
}
LANGUAGES = {"console", "yaml", "text", "c", "cpp", "cmake", "python", "json", "dockerfile", "diff"}


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of the opening fence, from 1
    language: str
    lines: list
    options: dict = dataclasses.field(default_factory=dict)  # of `run:`
    not_run: str = ""  # the reason
    setup: list = dataclasses.field(default_factory=list)  # commands that are not shown

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def _options(text):
    options = {}
    for word in text.split():
        key, _, value = word.partition("=")
        options[key] = value or True
    return options


def blocks_of(page, text):
    """All fenced blocks in order. `page` is only for messages."""
    blocks, inside = [], None
    options, not_run, setup = {}, "", []
    for number, line in enumerate(text.split("\n"), 1):
        if inside is not None:
            if line.strip() == "```":
                blocks.append(inside)
                inside = None
            else:
                inside.lines.append(line)
            continue
        directive = DIRECTIVE.match(line)
        if directive:
            kind, rest = directive.groups()
            if kind == "run":
                options = _options(rest)
            elif kind == "not run":
                not_run = rest
            else:
                setup.append(rest)
        elif line.startswith("```"):
            inside = Block(page, number, line[3:].strip(), [], options, not_run, setup)
            options, not_run, setup = {}, "", []
        elif line.strip():
            options, not_run = {}, ""
    if inside is not None:
        raise ValueError(f"{inside.place}: a block that does not end")
    return blocks


def commands_of(block):
    """(command, lines shown of its output) of a console block."""
    commands = []
    continues = False
    for line in block.lines:
        if continues:
            commands[-1][0] += "\n" + line
        elif line.startswith("$ "):
            commands.append([line[2:], []])
        elif commands:
            commands[-1][1].append(line)
            continue
        else:
            raise ValueError(f"{block.place}: a console block begins with `$ ` and a command")
        continues = line.endswith("\\")
    return commands
