"""Statistics in columns, one row for each: 12 bytes a row and about 20 for each record they came in."""

from array import array

from ._metrics_file import number

_WHICH_QUANTIZATION = frozenset(
    "underflows% overflows% scale_inv_min scale_inv_max mse sqnr cosine max_error saturated% flushed%"
    " saturated_energy% flushed_energy% scale_spread zero_blocks saturated_blocks% flushed_blocks% scale_age"
    " rounding_mean rounding_z rounding_correlation".split()
)
_RECIPES = ("fp8_delayed_scaling_", "fp8_current_scaling_", "mxfp8_", "fp8_block_scaling_", "nvfp4_")
_COLUMNWISE = "_columnwise"


def direction_of(statistic):
    """`rowwise` or `columnwise` for statistics of a quantization, "" for those of the tensor itself."""
    name = statistic
    columnwise = name.endswith(_COLUMNWISE)
    if columnwise:
        return "columnwise"
    for recipe in _RECIPES:
        if name.startswith(recipe):
            name = name[len(recipe) :]
            break
    return "rowwise" if name in _WHICH_QUANTIZATION or name.startswith("worst_block_") else ""


class _Texts:
    """Texts by number."""

    def __init__(self):
        self.texts = []
        self._numbers = {}

    def number(self, text):
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


class RecordColumns:
    """len() is the number of rows. Columns, by table["name"]:

    iteration, value, rank (whose file it is from): numbers
    layer, tensor, phase, statistic, direction, recipe, format, layout, group ("0,1": the ranks that the number is
    over), flags ("zero_amax;no_history": why to read it with care), run (the id of the start): texts

    Numbers are NumPy arrays (array.array without numpy), texts NumPy arrays of objects (lists without). A column
    is made when it is asked for and not kept."""

    _OF_HEAD = ("layer", "tensor", "phase", "recipe", "format", "layout", "group", "run")
    COLUMNS = (
        "iteration", "layer", "tensor", "phase", "statistic", "direction", "value", "rank", "recipe", "format",
        "layout", "group", "flags", "run",
    )  # fmt: skip

    def __init__(self):
        self.selection = None
        self._values = array("d")
        self._statistics = array("i")  # by row
        self._iterations = array("q")  # by record, as the rest
        self._heads = array("i")
        self._counts = array("i")
        self._statistic_names = _Texts()
        self._head_numbers = {}
        self._head_fields = []  # tuples in the order of _OF_HEAD, then rank
        self._names = {}  # names of a record's statistics -> (their numbers, which of them are wanted)
        self._flags = {}  # row -> text; most have none

    def __len__(self):
        return len(self._values)

    # ---- filling

    def add(self, record, rank, run):
        """A record of docs/records.md, if the selection wants it. ValueError when a number is none: then
        nothing of the record is kept."""
        selection = self.selection
        if selection is not None and not selection.takes_iteration(record["iteration"]):
            return
        head = self._head(record, rank, run)
        if head < 0:
            return
        stats = record["stats"]
        names = tuple(stats)
        known = self._names.get(names)
        if known is None:
            known = self._names[names] = self._wanted(names)
        numbers, wanted = known
        if not numbers:
            return
        values = stats.values() if wanted is None else [stats[name] for name in wanted]
        before = len(self._values)
        try:
            self._values.extend(values)
        except (TypeError, OverflowError):  # a text for NaN or Infinity
            del self._values[before:]
            self._values.extend([number(value) for value in values])
        self._statistics.extend(numbers)
        self._iterations.append(record["iteration"])
        self._heads.append(head)
        self._counts.append(len(numbers))
        flags = record.get("flags")
        if flags:
            self._add_flags(flags, names if wanted is None else wanted, before)

    def _head(self, record, rank, run):
        """Its number; -1: not wanted."""
        group = record.get("group", ())
        key = (
            record["layer"], record["tensor"], record.get("phase"), record.get("recipe"), record.get("format"),
            record.get("layout"), tuple(group) if type(group) is list else group, run, rank,
        )  # fmt: skip
        found = self._head_numbers.get(key)
        if found is None:
            layer, tensor, phase = (_text(part) for part in key[:3])
            if self.selection is None or self.selection.takes_series(layer, tensor, phase):
                found = len(self._head_fields)
                group = ",".join(str(member) for member in key[6])
                self._head_fields.append((layer, tensor, phase, _text(key[3]), _text(key[4]), _text(key[5]), group, run, rank))
            else:
                found = -1
            self._head_numbers[key] = found
        return found

    def _wanted(self, names):
        matches = None if self.selection is None else self.selection.statistic
        wanted = names if matches is None else tuple(name for name in names if matches(name))
        numbers = array("i", [self._statistic_names.number(name) for name in wanted])
        return numbers, None if wanted == names else wanted

    def _add_flags(self, flags, names, first_row):
        if not isinstance(flags, dict):
            return
        for at, name in enumerate(names):
            texts = flags.get(name)
            if isinstance(texts, list) and texts:
                self._flags[first_row + at] = ";".join(str(text) for text in texts)

    # ---- columns

    def __getitem__(self, name):
        return self.column(name)

    def column(self, name):
        codes, texts = self.codes(name) if name not in ("iteration", "value", "rank", "flags") else (None, None)
        numpy = _numpy()
        if name == "value":
            return numpy.array(self._values) if numpy else array("d", self._values)
        if name == "iteration":
            return self._by_row(self._iterations, "q")
        if name == "rank":
            ranks = array("q", [self._head_fields[head][-1] for head in self._heads])
            return self._by_row(ranks, "q")
        if name == "flags":
            flags = [""] * len(self)
            for row, text in self._flags.items():
                flags[row] = text
            return numpy.array(flags, dtype=object) if numpy else flags
        if numpy:
            return numpy.array(texts, dtype=object)[codes] if texts else numpy.empty(0, dtype=object)
        return [texts[code] for code in codes]

    def codes(self, name):
        """(numbers, texts) of a column of texts other than flags: row i holds texts[numbers[i]]. Takes a
        fraction of the memory of the texts themselves."""
        if name in ("statistic", "direction"):
            texts = self._statistic_names.texts
            codes = array("i", self._statistics)
            numpy = _numpy()
            if name == "statistic":
                return (numpy.array(codes) if numpy else codes), list(texts)
            directions = _Texts()
            of_statistic = array("i", [directions.number(direction_of(text)) for text in texts])
            if numpy:
                return numpy.array(of_statistic)[numpy.array(codes)], directions.texts
            return array("i", [of_statistic[code] for code in codes]), directions.texts
        if name not in self._OF_HEAD:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.COLUMNS)}")
        at = self._OF_HEAD.index(name)
        texts = _Texts()
        of_head = array("i", [texts.number(fields[at]) for fields in self._head_fields])
        of_record = array("i", [of_head[head] for head in self._heads])
        return self._by_row(of_record, "i"), texts.texts

    def to_dict(self):
        """All columns by name, in the order of COLUMNS."""
        return {name: self.column(name) for name in self.COLUMNS}

    def series(self, layer, tensor, statistic, phase=None, rank=None):
        """(iterations, values) of one statistic of one tensor, in the order of the files: what one plots. Where
        several ranks have records of their own (layout `partial`), say which."""
        heads = {
            at
            for at, fields in enumerate(self._head_fields)
            if fields[0] == layer
            and fields[1] == tensor
            and (phase is None or fields[2] == phase)
            and (rank is None or fields[-1] == rank)
        }
        wanted = self._statistic_names._numbers.get(statistic)
        iterations, values = array("q"), array("d")
        row = 0
        for iteration, head, count in zip(self._iterations, self._heads, self._counts):
            if head in heads:
                for at in range(row, row + count):
                    if self._statistics[at] == wanted:
                        iterations.append(iteration)
                        values.append(self._values[at])
            row += count
        numpy = _numpy()
        return (numpy.array(iterations), numpy.array(values)) if numpy else (iterations, values)

    def records(self):
        """Yields (iteration, head, {statistic: value}) for each record; head: the fields layer, tensor, phase,
        recipe, format, layout, group, run, rank."""
        names = self._statistic_names.texts
        row = 0
        for iteration, head, count in zip(self._iterations, self._heads, self._counts):
            stats = {names[self._statistics[at]]: self._values[at] for at in range(row, row + count)}
            yield iteration, self._head_fields[head], stats
            row += count

    def to_pandas(self):
        """A pandas.DataFrame; texts are categories, which takes a fraction of their memory."""
        import pandas

        columns = {}
        for name in self.COLUMNS:
            if name in ("iteration", "value", "rank", "flags"):
                columns[name] = self.column(name)
            else:
                codes, texts = self.codes(name)
                columns[name] = pandas.Categorical.from_codes(codes, texts)
        return pandas.DataFrame(columns)

    def to_polars(self):
        """A polars.DataFrame."""
        import polars

        columns = {}
        for name in self.COLUMNS:
            if name in ("iteration", "value", "rank"):
                columns[name] = self.column(name)
            elif name == "flags":
                columns[name] = polars.Series(list(self.column(name)), dtype=polars.String)
            else:
                codes, texts = self.codes(name)
                columns[name] = polars.Series(texts, dtype=polars.String).gather(codes)
        return polars.DataFrame(columns)

    def _by_row(self, of_record, code):
        numpy = _numpy()
        if numpy:
            counts = numpy.array(self._counts)
            return numpy.repeat(numpy.array(of_record), counts)
        rows = array(code)
        for value, count in zip(of_record, self._counts):
            rows.extend([value] * count)
        return rows


def _text(value):
    return value if isinstance(value, str) else ""


def _numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy
