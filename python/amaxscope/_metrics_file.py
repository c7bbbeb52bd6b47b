"""One metrics/rank_R.jsonl as a sequence of whole steps. The file may be written to meanwhile, cut off, or of
anybody: what cannot be understood is counted and said, and one step at a time is in memory."""

import json
import os
import re

from ._files import open_regular

_CHUNK = 1 << 20
LONGEST_LINE = 4 << 20  # bytes; as the C++ readers have it
MOST_WITHOUT_END = 64 << 20  # bytes after which the rest is not looked at: a hole may be larger than any disk
_MOST_PROBLEMS = 20  # that are said of a file; the rest is counted
_SCHEMA_VERSION = 1
# How records begin as they are written here. A line of another shape is parsed before it is decided.
_BEGIN = re.compile(r'\{"iteration":(-?\d{1,18}),"layer":"([^"\\]*)","tensor":"([^"\\]*)","phase":"([^"\\]*)",')


def metrics_files(directory):
    """[(path, rank)] by rank. FileNotFoundError when there is nothing that could be read."""
    folder = os.path.join(directory, "metrics")
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise FileNotFoundError(f"{folder}: {error.strerror}; {directory} is no log directory of amaxscope") from None
    found = []
    for name in names:
        match = re.fullmatch(r"rank_(\d{1,9})\.jsonl", name)
        if match:
            found.append((os.path.join(folder, name), int(match[1])))
    if not found:
        raise FileNotFoundError(f"{folder}: has no file rank_R.jsonl; nothing was recorded yet")
    return sorted(found, key=lambda entry: entry[1])


class Step:
    """The lines between two ends of a step, of one file."""

    __slots__ = ("iteration", "rank", "run", "records", "scalars", "_others")

    def __init__(self, rank, run):
        self.iteration = None
        self.rank = rank
        self.run = run
        self.records = []  # dicts of docs/records.md
        self.scalars = []  # (iteration, {name: value})
        self._others = []

    def others(self, kind):
        return [(iteration, what) for name, iteration, what in self._others if name == kind]

    def add_other(self, kind, iteration, what):
        self._others.append((kind, iteration, what))


class MetricsFile:
    """steps() may be called again after it ended, when the file has grown: it goes on where it was."""

    def __init__(self, path, rank, selection, problems):
        self.path = path
        self.rank = rank
        self.problems = problems
        self.closed = False  # the last line that was understood ended a run
        self.position = 0  # of the first byte not taken yet
        self._selection = selection
        self._selects = selection.selects_records()
        self._series = {}  # (layer, tensor, phase) -> whether it is wanted
        self._line = 0
        self._rest = b""
        self._too_long = False
        self._without_end = 0
        self._gave_up = False
        self._said = 0
        self._run = ""
        self._takes_run = selection.run is None
        self._step = Step(rank, "")

    def steps(self, final=True):
        """Yields what is whole. final: nothing more will come, so that what is left over is a problem."""
        try:
            with open_regular(self.path) as file:
                if os.fstat(file.fileno()).st_size < self.position:
                    self._problem("is shorter than what was read of it before; it is read no further")
                    return
                file.seek(self.position)
                while not self._gave_up:
                    chunk = file.read(_CHUNK)
                    if not chunk:
                        break
                    self.position += len(chunk)
                    yield from self._chunk(chunk)
        except OSError as error:
            self._problem(error.strerror or str(error))
            return
        if final:
            self._finish()

    def _chunk(self, chunk):
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if lines:
            self._without_end = 0
        if len(self._rest) > LONGEST_LINE:
            self._without_end += len(self._rest)
            self._rest, self._too_long = b"", True
            if self._without_end > MOST_WITHOUT_END:
                self._gave_up = True
                self._problem(f"a line of more than {MOST_WITHOUT_END >> 20} MiB; the file is read no further")
        for line in lines:
            self._line += 1
            if self._too_long or len(line) > LONGEST_LINE:
                self._too_long = False
                self._problem(f"a line of more than {LONGEST_LINE >> 20} MiB", self._line)
                continue
            step = self._understand(line)
            if step is not None:
                yield step

    def _understand(self, line):
        """The step that this line ended, or None."""
        try:
            text = line.decode("utf-8")
            if self._passes_by(text):
                return None
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("no JSON object")
            return self._sort(content)
        except (ValueError, TypeError, RecursionError) as error:
            self._problem(f"not understood: {error}", self._line)
            return None

    def _passes_by(self, text):
        """Whether it is a record that is not wanted, seen without parsing it."""
        if not self._selects:
            return False
        match = _BEGIN.match(text)
        if match is None:
            return False
        if not self._selection.takes_iteration(int(match[1])):
            return True
        series = match.group(2, 3, 4)
        wanted = self._series.get(series)
        if wanted is None:
            wanted = self._series[series] = self._selection.takes_series(*series)
        return not wanted

    def _sort(self, content):
        if "schema_version" in content:
            return self._opening(content)
        iteration = content.get("iteration")
        if type(iteration) is not int or not -(1 << 63) <= iteration < (1 << 63):
            raise ValueError("no integer `iteration`")
        step = self._step
        if "end_of_step" in content:
            return self._end_of_step(iteration)
        if "end_of_run" in content:
            self.closed = True
            return None
        self.closed = False
        for kind in ("scalars", "finding", "event"):
            if kind in content:
                what = content[kind]
                if not isinstance(what, dict):
                    raise ValueError(f"`{kind}` is no object")
                if self._selection.takes_iteration(iteration):
                    if kind == "scalars":
                        step.scalars.append((iteration, _numbers(what)))
                    else:
                        step.add_other(kind, iteration, what)
                return None
        if not isinstance(content.get("stats"), dict):
            raise ValueError("of no known kind")
        for name in ("layer", "tensor"):
            if not isinstance(content.get(name), str) or not content[name]:
                raise ValueError(f"no text `{name}`")
        step.records.append(content)
        return None

    def _opening(self, content):
        if content["schema_version"] != _SCHEMA_VERSION:
            self._problem(f"schema version {content['schema_version']!r} and not {_SCHEMA_VERSION}", self._line)
        self._leave_incomplete()
        run = content.get("run_id")
        self._run = run if isinstance(run, str) else ""
        self._takes_run = self._selection.run is None or bool(self._selection.run(self._run))
        self.closed = False
        self._step = Step(self.rank, self._run)

    def _end_of_step(self, iteration):
        step, self._step = self._step, Step(self.rank, self._run)
        self.closed = False
        step.iteration = iteration
        return step if self._takes_run and self._selection.takes_iteration(iteration) else None

    def _leave_incomplete(self):
        step = self._step
        if step.records or step.scalars or step._others:
            self._problem("lines of a step without the line that ends it: cut off, left out", self._line)

    def _finish(self):
        if self._rest or self._too_long:
            self._problem("the last line is cut off", self._line + 1)
        self._leave_incomplete()

    def _problem(self, what, line=None):
        self._said += 1
        if self._said <= _MOST_PROBLEMS:
            self.problems.append(f"{self.path}{'' if line is None else f':{line}'}: {what}")
        elif self._said == _MOST_PROBLEMS + 1:
            self.problems.append(f"{self.path}: more problems, not listed")


def _numbers(values):
    """With the texts for what JSON has no number for as floats; anything else is an error."""
    return {name: number(value) for name, value in values.items()}


_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value):
    kind = type(value)
    if kind is float:
        return value
    if kind is int and -(1 << 1023) < value < (1 << 1023):
        return float(value)
    if kind is str and value in _WORDS:
        return _WORDS[value]
    raise ValueError(f"{value!r:.40} is no number")
