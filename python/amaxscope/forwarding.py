"""Hands the metrics of a run to a logger, afterwards or while the run goes on.

A logger is an object with log_scalar(name, value, iteration), as a BaseLogger of nvidia-dlfw-inspect has it, or one
with log(dict, step), as a Weights & Biases run has it, or a function of (iteration, dict). Names are those of
nvidia-dlfw-inspect: LAYER_TENSOR_STATISTIC, so that dashboards people have keep working. What that tool has no
name for gets a longer one: LAYER_TENSOR_eval_STATISTIC and ..._recompute_... for those phases, and _rank_R at the
end where each rank has a record of its own summand (layout `partial`). Scalars keep their names.

Iterations come in ascending order, each with everything in it (following: but for what comes very late).
"""

import heapq
import os
import time

from ._metrics_file import MetricsFile, metrics_files
from ._record_columns import RecordColumns
from ._selection import Selection


def forward_run(run, logger, *, scalars=True):
    """What read() read. Returns the number of values handed over."""
    by_iteration = {}
    for iteration, head, stats in run.records():
        by_iteration.setdefault(iteration, {}).update(_named(head, stats))
    for iteration, name, value in run.scalars if scalars else ():
        by_iteration.setdefault(iteration, {})[name] = value
    log = _log_function(logger)
    for iteration in sorted(by_iteration):
        log(iteration, by_iteration[iteration])
    return sum(len(values) for values in by_iteration.values())


def forward(directory, logger, *, follow=False, scalars=True, poll=1.0, settle=2.0, timeout=None, stop=None, **filters):
    """The metrics of a log directory, one iteration at a time in memory. Returns the number of values.

    follow   goes on as the run writes, until it is closed (and also waits for its first file). A run that was
             killed is never closed: `timeout` ends it after so many seconds without a new line, `stop`, a
             function, as soon as it returns true.
    poll     seconds between two looks at the files.
    settle   seconds that an iteration waits for ranks that have not written anything as late yet. Which ranks
             write at an iteration is not known before they do: a rank with nothing due writes nothing. What
             comes even later is handed over when it comes, then out of order; Weights & Biases drops it.
    filters  as read() has them."""
    selection = Selection(**{name: filters.pop(name, None) for name in Selection.NAMES})
    if filters:
        raise TypeError(f"forward() has no option {sorted(filters)[0]!r}")
    log = _log_function(logger)
    if not follow:
        return _forward_whole(os.fspath(directory), log, selection, scalars)
    return _Follower(os.fspath(directory), log, selection, scalars, settle).run(poll, timeout, stop)


def _forward_whole(directory, log, selection, scalars):
    problems = []
    files = [
        _steps(MetricsFile(path, rank, selection, problems))
        for path, rank in metrics_files(directory)
        if selection.takes_rank(rank)
    ]
    count = 0
    pending, iteration = {}, None
    for at, _, step in heapq.merge(*files):
        if at != iteration and pending:
            count += _send(log, iteration, pending)
            pending = {}
        iteration = at
        pending.update(_values_of(step, selection, scalars))
    return count + (_send(log, iteration, pending) if pending else 0)


def _steps(file):
    for number, step in enumerate(file.steps()):
        yield step.iteration, (file.rank, number), step


class _Follower:
    """Iterations that not all files are past yet, and since when."""

    def __init__(self, directory, log, selection, scalars, settle):
        self._directory = directory
        self._log = log
        self._selection = selection
        self._scalars = scalars
        self._settle = settle
        self._files = {}
        self._reached = {}  # path -> last iteration that was read
        self._pending = {}  # iteration -> [first seen, values]
        self._problems = []
        self.count = 0

    def run(self, poll, timeout, stop):
        last_news = time.monotonic()
        while True:
            closed = self._closed()  # before reading: what is read then is everything that rank 0 has
            if self._look():
                last_news = time.monotonic()
            ended = closed and self._others_ended(time.monotonic() - last_news)
            self._send_settled(everything=ended)
            if ended or (stop is not None and stop()):
                break
            if timeout is not None and time.monotonic() - last_news > timeout:
                break
            time.sleep(poll)
        self._send_settled(everything=True)
        return self.count

    def _closed(self):
        from .reading import read_run_file

        runs = read_run_file(self._directory, [])
        return bool(runs) and runs[-1].get("state") == "closed"

    def _others_ended(self, quiet):
        """Whether each rank has written the last line of a run, or none has written anything for a while."""
        return all(file.closed for file in self._files.values()) or quiet > self._settle

    def _look(self):
        """Reads what is new; whether anything was."""
        try:
            found = metrics_files(self._directory)
        except FileNotFoundError:
            return False
        news = False
        for path, rank in found:
            if not self._selection.takes_rank(rank):
                continue
            if path not in self._files:
                self._files[path] = MetricsFile(path, rank, self._selection, self._problems)
            for step in self._files[path].steps(final=False):
                news = True
                self._reached[path] = step.iteration
                first_seen, values = self._pending.setdefault(step.iteration, [time.monotonic(), {}])
                values.update(_values_of(step, self._selection, self._scalars))
        return news

    def _send_settled(self, everything):
        behind = min((self._reached.get(path, -(1 << 63)) for path in self._files), default=-(1 << 63))
        now = time.monotonic()
        for iteration in sorted(self._pending):
            first_seen, values = self._pending[iteration]
            if not everything and iteration > behind and now - first_seen < self._settle:
                break  # later ones wait too: loggers want ascending iterations
            del self._pending[iteration]
            if values:
                self.count += _send(self._log, iteration, values)


def _send(log, iteration, values):
    log(iteration, values)
    return len(values)


def _values_of(step, selection, scalars):
    columns = RecordColumns()
    columns.selection = selection
    for record in step.records:
        try:
            columns.add(record, step.rank, step.run)
        except (ValueError, TypeError):
            continue  # a reader lists these; a logger cannot be told
    values = {}
    for _, head, stats in columns.records():
        values.update(_named(head, stats))
    for _, numbers in step.scalars if scalars else ():
        values.update(numbers)
    return values


def _named(head, stats):
    layer, tensor, phase, _, _, layout, _, _, rank = head
    prefix = f"{layer}_{tensor}_" + (f"{phase}_" if phase in ("eval", "recompute") else "")
    suffix = f"_rank_{rank}" if layout == "partial" else ""
    return {f"{prefix}{statistic}{suffix}": value for statistic, value in stats.items()}


def _log_function(logger):
    log_scalar = getattr(logger, "log_scalar", None)
    if callable(log_scalar):

        def each(iteration, values):
            for name, value in values.items():
                log_scalar(name, value, iteration)

        return each
    log = getattr(logger, "log", None)
    if callable(log):
        return lambda iteration, values: log(values, step=iteration)
    if callable(logger):
        return logger
    raise TypeError(
        f"{type(logger).__name__}: a logger has log_scalar(name, value, iteration) or log(dict, step), or is a "
        "function of (iteration, dict)"
    )
