"""Writes what docs/records.md describes into the log directory of nvidia-dlfw-inspect, so that `amaxscope report`, `diff`,
`watch` and amaxscope.read work on the run. The layout is always `replicated`: TransformerEngine does not say how a tensor lies."""

import datetime
import hashlib
import json
import math
import os

import nvdlfw_inspect.api as debug_api
from nvdlfw_inspect.logging import get_logger

from .. import _files
from .._metrics_file import LONGEST_LINE
from . import groups

_LARGEST_RUN_FILE = 256 << 20  # bytes
_PHASES = {"gradient": "backward", "dgrad": "backward", "wgrad": "backward"}
_WORDS = {
    "fp8_delayed_scaling": "delayed",
    "fp8_current_scaling": "current",
    "fp8_block_scaling": "block",
    None: "none",
}


class Records:
    """Of one run, on one rank. Steps whole lines at a time; what cannot be written ends the writing, not the run."""

    def __init__(self, iteration, differing_scales, alters_numerics):
        self._folder = get_logger().root_log_dir
        self._rank = groups.world_rank()
        self._first = self._last = iteration
        self._written_before = None
        self._file = None
        self._run = dict(groups.gathered({"run": _new_run_id()}, None))[0]["run"]
        try:
            os.makedirs(os.path.join(self._folder, "metrics"), exist_ok=True)
            if self._rank == 0:
                self._describe(differing_scales, alters_numerics)
            path = os.path.join(self._folder, "metrics", f"rank_{self._rank}.jsonl")
            self._written_before = _last_step(path)
            self._file = _files.open_to_append(path)
            if self._file.tell() and not _ends_in_line(path):
                self._file.write(b"\n")
            self._write([{"schema_version": 1, "run_id": self._run, "rank": self._rank}])
        except OSError as error:
            self._give_up(error)

    def write_step(self, iteration, records):
        """records: [(layer, tensor, ranks, {"entry", "stats"})]."""
        self._last = max(self._last, iteration)
        if not records or (self._written_before is not None and iteration <= self._written_before):
            return
        lines = [_line(iteration, *record) for record in records]
        lines.append({"iteration": iteration, "end_of_step": True, "records": len(records)})
        self._write(lines)

    def close(self):
        self._write([{"iteration": self._last, "end_of_run": True}])
        if self._file is not None:
            self._file.close()
            self._file = None
            if self._rank == 0:
                try:
                    self._close_description()
                except OSError as error:
                    self._give_up(error)

    def _write(self, lines):
        if self._file is None:
            return
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error):
        self._file = None
        get_logger().log_message(f"amaxscope: records are not written any more: {error}")

    def _describe(self, differing_scales, alters_numerics):
        runs = self._read_runs()
        source, text = _config()
        runs.append(
            {
                "run_id": self._run,
                "state": "unclosed",
                "start": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "first_iteration": self._first,
                "world_size": groups.world_size(),
                "parallel": {},
                "options": {
                    "program": "nvidia-dlfw-inspect",
                    "amax_scope": groups.SETTINGS.amax_scope,
                    "scales_differing_between_tp_ranks": differing_scales,
                    "replica_counting": "te",
                },
                "config": {"source": source, "digest": hashlib.sha256(text.encode()).hexdigest()[:16], "text": text},
                "section_layers": {},
                "alters_numerics": alters_numerics,
                "other_paths": [],
            }
        )
        self._write_runs(runs)

    def _close_description(self):
        runs = self._read_runs()
        for run in runs:
            if run.get("run_id") == self._run:
                run.update(state="closed", last_iteration=self._last)
        self._write_runs(runs)

    def _read_runs(self):
        try:
            with _files.open_regular(os.path.join(self._folder, "run.json")) as file:
                return _files.json_of(file.read(_LARGEST_RUN_FILE))["runs"]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"run.json of an earlier run is damaged: {error}") from error

    def _write_runs(self, runs):
        text = json.dumps({"schema_version": 1, "runs": runs}, indent=1)
        _files.replace(os.path.join(self._folder, "run.json"), text)


def _line(iteration, layer, tensor, ranks, record):
    entry = record["entry"]
    line = {
        "iteration": iteration,
        "layer": layer,
        "tensor": tensor,
        "phase": _PHASES.get(tensor, "forward"),
        "stats": {name: _number(value) for name, value in record["stats"].items()},
        "flags": {},
        "recipe": _WORDS.get(entry["recipe"], entry["recipe"]),
        "group": list(ranks),
        "layout": "replicated",
    }
    if entry["format"]:
        line["format"] = entry["format"].upper()
    return line


def _number(value):
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _new_run_id():
    return f"{datetime.datetime.now():%Y%m%dT%H%M%S.%f}-{os.getpid()}"


def _config():
    given = debug_api.DEBUG_MANAGER.config_file
    if isinstance(given, dict):
        return "a dictionary", json.dumps(given, indent=1, default=str)
    try:
        with open(given, encoding="utf-8") as file:
            return str(given), file.read()
    except OSError:
        return str(given), ""


def _last_step(path):
    """The iteration of the last whole step of an earlier run in this file."""
    last = None
    try:
        with _files.open_regular(path) as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise OSError(f"{path}: a line of more than {LONGEST_LINE >> 20} MiB: no file of records")
                if b'"end_of_step":true' in line:
                    last = _files.json_of(line).get("iteration", last)
    except FileNotFoundError:
        pass
    except ValueError as error:
        raise OSError(f"{path}: damaged: {error}") from error
    return last


def _ends_in_line(path):
    with _files.open_regular(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
