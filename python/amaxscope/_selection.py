"""Which records a reader wants."""

import re


def _matcher(wanted, what):
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return wanted.__eq__
    if isinstance(wanted, re.Pattern):
        return lambda text: wanted.search(text) is not None
    if callable(wanted):
        return wanted
    try:
        texts = frozenset(wanted)
    except TypeError:
        texts = None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{what}={wanted!r}: a text, a list of texts, a compiled pattern or a function is wanted")
    return texts.__contains__


def _interval(wanted):
    """(first, last), both included, or None: all."""
    if wanted is None:
        return None
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return (wanted, wanted)
    try:
        first, last = wanted
    except (TypeError, ValueError):
        raise TypeError(f"iterations={wanted!r}: a number or a pair (first, last) is wanted") from None
    first = -(1 << 63) if first is None else int(first)
    last = (1 << 63) - 1 if last is None else int(last)
    if first > last:
        raise ValueError(f"iterations={wanted!r}: the first is after the last")
    return (first, last)


class Selection:
    """Answers for single fields; a whole record is decided by RecordColumns, once for each kind of record."""

    NAMES = ("iterations", "layer", "tensor", "statistic", "phase", "rank", "run")

    def __init__(self, iterations=None, layer=None, tensor=None, statistic=None, phase=None, rank=None, run=None):
        self.interval = _interval(iterations)
        self.layer = _matcher(layer, "layer")
        self.tensor = _matcher(tensor, "tensor")
        self.statistic = _matcher(statistic, "statistic")
        self.phase = _matcher(phase, "phase")
        self.run = _matcher(run, "run")
        self._ranks = None if rank is None else frozenset([rank] if isinstance(rank, int) else rank)

    def takes_rank(self, rank):
        return self._ranks is None or rank in self._ranks

    def takes_iteration(self, iteration):
        return self.interval is None or self.interval[0] <= iteration <= self.interval[1]

    def selects_records(self):
        return not (self.interval is None and self.layer is None and self.tensor is None and self.phase is None)

    def takes_series(self, layer, tensor, phase):
        return (
            (self.layer is None or self.layer(layer))
            and (self.tensor is None or self.tensor(tensor))
            and (self.phase is None or self.phase(phase))
        )
