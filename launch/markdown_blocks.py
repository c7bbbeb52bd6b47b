"""The fenced blocks of a Markdown page, with what the comments before them tell launch/docs. No
output, no side effects."""

import dataclasses
import re

DIRECTIVE = re.compile(r"^<!-- (run|not run|setup|excerpt): (.*) -->$")
RUN = {"console", "yaml", "python"}  # by launch/docs
COMPILED = {"c", "cpp", "cmake", "dockerfile"}  # by tests, of the files that they are excerpts of
LANGUAGES = RUN | COMPILED | {"text", "json", "diff"}


@dataclasses.dataclass
class Block:
    page: str  # from the root
    line: int  # of the opening fence, from 1
    language: str
    lines: list
    options: dict = dataclasses.field(default_factory=dict)  # of `run:`
    not_run: str = ""  # the reason
    excerpt: str = ""  # the file that has these lines
    setup: list = dataclasses.field(default_factory=list)  # commands that are not shown

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def is_checked(self):
        """Whether somebody sees to it that it is right, or says why not."""
        return self.language not in COMPILED or bool(self.excerpt or self.not_run)


def _options(text):
    options = {}
    for word in text.split():
        key, _, value = word.partition("=")
        options[key] = value or True
    return options


def blocks_of(page, text):
    """All fenced blocks in order. `page` is only for messages."""
    blocks, inside = [], None
    told, setup = {}, []
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
            if kind == "setup":
                setup.append(rest)
            elif kind == "run":
                told["options"] = _options(rest)
            else:
                told[kind.replace(" ", "_")] = rest
        elif line.startswith("```"):
            inside = Block(page, number, line[3:].strip(), [], setup=setup, **told)
            told, setup = {}, []
        elif line.strip():
            told = {}
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
