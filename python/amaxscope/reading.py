"""The metrics of a run as columns.

    run = amaxscope.read("log", layer=re.compile("linear_fc1"), statistic="cur_amax")
    run["value"], run["iteration"]          # NumPy arrays, one row for each statistic
    run.to_pandas()

A log directory may belong to a run that goes on, that was cut off, or that was started several times; what is
taken are the steps that are whole, in each file those of all starts one after the other (docs/records.md).
Neither numpy nor pandas nor polars is imported before a method needs it; without numpy the columns are
array.array and lists. Not thread safe; reads files, writes none.
"""

import os

from ._files import json_of, open_regular
from ._metrics_file import MetricsFile, metrics_files
from ._record_columns import RecordColumns
from ._selection import Selection

_LARGEST_RUN_FILE = 256 << 20


class Run(RecordColumns):
    """What read() found: the columns of RecordColumns, and

    directory  the log directory
    runs       the entries of run.json, one for each start in this directory ([] when there is none)
    scalars    list of (iteration, name, value): the trainer's loss, learning rate, ...
    findings   list of dicts, as docs/records.md has them, with `iteration`, `rank` (who wrote it) and `run`
    events     the same
    problems   list of texts: lines and steps that were cut off, unreadable lines, missing files
    """

    def __init__(self, directory):
        super().__init__()
        self.directory = os.fspath(directory)
        self.runs = []
        self.scalars = []
        self.findings = []
        self.events = []
        self.problems = []

    def forward(self, logger, **options):
        """Hands the metrics to a logger; see amaxscope.forwarding.forward. With follow=True the directory is
        read again, from its beginning and then as it grows."""
        from .forwarding import forward, forward_run

        if options.get("follow"):
            return forward(self.directory, logger, **options)
        options.pop("follow", None)
        return forward_run(self, logger, **options)

    def _take(self, step):
        for record in step.records:
            try:
                self.add(record, step.rank, step.run)
            except (ValueError, TypeError) as error:
                self.problems.append(f"rank {step.rank}, iteration {step.iteration}: a record is left out: {error}")
        for iteration, values in step.scalars:
            for name, value in values.items():
                self.scalars.append((iteration, name, value))
        for kind, found in (("finding", self.findings), ("event", self.events)):
            for iteration, what in step.others(kind):
                found.append({"iteration": iteration, "rank": step.rank, "run": step.run, **what})


def read(directory, *, iterations=None, layer=None, tensor=None, statistic=None, phase=None, rank=None, run=None):
    """Reads the metrics of a log directory into memory: 12 bytes for a value, and about 20 for each line.

    Filters apply while reading. layer, tensor, statistic, phase, run: a text, which must be equal, a list of
    texts, a compiled pattern, which is searched for, or a function of the text. iterations: (first, last), both
    included, None for an open end; or one number. rank: a number or a list, of the ranks whose files are read.
    Filters on layer, tensor, statistic and phase do not concern scalars, findings and events.

    FileNotFoundError when there is no such directory, or no metrics in it. A file that is damaged is no error:
    what is whole is read, `problems` says what is not."""
    selection = Selection(iterations, layer, tensor, statistic, phase, rank, run)
    result = Run(directory)
    result.selection = selection
    result.runs = read_run_file(result.directory, result.problems)
    for path, file_rank in metrics_files(result.directory):
        if not selection.takes_rank(file_rank):
            continue
        for step in MetricsFile(path, file_rank, selection, result.problems).steps():
            result._take(step)
    return result


def batches(directory, *, rows=1_000_000, **filters):
    """As read(), but for runs that do not fit into memory: yields Runs of at least `rows` rows (the last of fewer),
    one after the other and file by file, each with the scalars, findings and problems that came with it."""
    selection = Selection(**{name: filters.pop(name, None) for name in Selection.NAMES})
    if filters:
        raise TypeError(f"batches() has no filter {sorted(filters)[0]!r}; there are {', '.join(Selection.NAMES)}")
    first = _batch(directory, selection)
    first.runs = read_run_file(first.directory, first.problems)
    runs, current = first.runs, first
    for path, file_rank in metrics_files(os.fspath(directory)):
        if not selection.takes_rank(file_rank):
            continue
        file = MetricsFile(path, file_rank, selection, current.problems)
        for step in file.steps():
            current._take(step)
            if len(current) >= rows:
                yield current
                current = _batch(directory, selection)
                current.runs = runs
                file.problems = current.problems
    yield current


def _batch(directory, selection):
    result = Run(directory)
    result.selection = selection
    return result


def read_run_file(directory, problems):
    """The entries of run.json; [] and a problem when it is missing or damaged."""
    path = os.path.join(directory, "run.json")
    try:
        with open_regular(path) as file:
            text = file.read(_LARGEST_RUN_FILE + 1)
        if len(text) > _LARGEST_RUN_FILE:
            problems.append(f"{path}: more than {_LARGEST_RUN_FILE >> 20} MiB; left out")
            return []
        content = json_of(text)
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return []
    except ValueError as error:
        problems.append(f"{path}: no JSON: {error}")
        return []
    runs = content.get("runs") if isinstance(content, dict) else None
    if not isinstance(runs, list):
        problems.append(f"{path}: has no list `runs`")
        return []
    return [run for run in runs if isinstance(run, dict)]
