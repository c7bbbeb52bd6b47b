"""What must hold of a run's files after a kill, and after a run that was killed, went on and came to its end."""

import json
import os
import re

from run_files import (
    LEFTOVER,
    check_safetensors,
    event_values,
    files_below,
    json_lines,
    leftovers,
    metrics,
    read_bytes,
    require,
    text_log,
)

# What a path is; a path that matches nothing has no business there.
_KINDS = {
    "state": r"states/iter_\d{6}/(amaxscope_session_)?rank_\d+\.safetensors",
    "newest": r"states/newest",
    "dump": r"log/(events/)?tensor_dumps/rank_\d+/iter_\d{6}/[^/]+\.safetensors",
    "manifest": r"log/(events/)?tensor_dumps/rank_\d+/manifest\.jsonl",
    "metrics": r"log/metrics/rank_\d+\.jsonl",
    "text": r"log/nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-\d+\.log",
    "messages": r"log/nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-\d+\.log",
    "run": r"log/run\.json",
    "flight": r"log/flight/rank_\d+\.flight",
    "unfinished flight": r"log/flight/rank_\d+\.flight\.new",
    "tensorboard": r"log/tensorboard/rank_\d+/events\.out\.tfevents\.[^/]+",
    "last words": r"log/flight/last_words\.txt",
    "event": r"log/events/iter_\d{6}/rank_\d+\.jsonl",
    "event state": r"log/events/iter_\d{6}/rank_\d+_state\.json",
}


def kind_of(path):
    if LEFTOVER.fullmatch(os.path.basename(path)):
        return "leftover"
    for kind, pattern in _KINDS.items():
        if re.fullmatch(pattern, path):
            return kind
    raise AssertionError(f"{path}: nobody knows what this is")


class Reference:
    """The files of a run that nobody killed."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {path: kind_of(path) for path in files_below(folder)}
        require(not leftovers(folder), f"{folder}: {leftovers(folder)}")
        self.bytes = {p: read_bytes(os.path.join(folder, p)) for p, kind in self.files.items() if kind in ("state", "dump")}
        self.steps = {p: metrics(os.path.join(folder, p))[0] for p, kind in self.files.items() if kind == "metrics"}
        self.text = {p: text_log(os.path.join(folder, p))[0] for p, kind in self.files.items() if kind == "text"}
        self.flight_bytes = {os.path.getsize(os.path.join(folder, p)) for p, kind in self.files.items() if kind == "flight"}
        self.events = {p: _event_lines(os.path.join(folder, p)) for p, kind in self.files.items() if kind == "event"}
        self.manifests = {p: _written(os.path.join(folder, p), 0) for p, kind in self.files.items() if kind == "manifest"}
        self.tensorboard = {where: event_values(os.path.join(folder, where))[0] for where in _event_folders(self.files)}
        for content in (self.bytes, self.steps, self.text, self.flight_bytes, self.manifests, self.tensorboard):
            require(content, f"{folder}: a kind of file is missing, and nothing would be checked")


def _event_folders(files):
    return sorted({os.path.dirname(path) for path, kind in files.items() if kind == "tensorboard"})


def _event_lines(path):
    """The lines without those that begin a record, of which there must be one."""
    objects, broken, cut = json_lines(path)
    require(not broken and not cut, f"{path}: is not whole")
    begins = [content for _, content in objects if "schema_version" in content]
    require(len(begins) == 1, f"{path}: {len(begins)} records of events in one file")
    return [line for line, content in objects if "schema_version" not in content]


def _written(path, kills):
    """Every entry but the numbers that count within a run; those that a kill cut off are at most as many as kills."""
    objects, broken, cut = json_lines(path)
    require(broken + cut <= kills, f"{path}: {broken + cut} lines that are none after {kills} kills")
    entries = {}
    for _, content in objects:
        if content["status"] == "end":
            continue
        require(content["file"] not in entries, f"{path}: {content['file']} twice")
        entries[content["file"]] = (content["status"], content["bytes"])
    return entries


def _is_beginning(lines, whole):
    """Whether all lines but those of the newest iteration are the first ones of `whole`; of the newest, none is twice."""
    newest = [line for line in lines if line[line.index("iteration=") :][:16] == lines[-1][lines[-1].index("iteration=") :][:16]]
    older = lines[: len(lines) - len(newest)]
    return older == whole[: len(older)] and len(set(newest)) == len(newest) and set(newest) <= set(whole)


def check_order(calls, folder):
    """What a power cut would find. Of every state: its content is on the disk before it has its name, its name is before
    the state is called the newest, and so is the name of the newest before the training goes on. Returns how many."""
    synced, named, unsynced_names, states = set(), 0, set(), 0
    for call in calls:
        _, what, path, *more = call.split(" ")
        if what == "write":
            synced.discard(path)
            require(f"{folder}/log" not in path or not unsynced_names, f"training goes on before {unsynced_names} are on the disk")
        elif what in ("fsync", "fdatasync"):
            synced.add(path)
            unsynced_names = {name for name in unsynced_names if os.path.dirname(name) != path}
        elif what == "rename" and more[0].startswith(f"{folder}/states/"):
            require(path in synced, f"{more[0]} gets its name before its content is on the disk")
            require(not more[0].endswith("/newest") or not unsynced_names, f"newest before {unsynced_names}")
            unsynced_names.add(more[0])
            named += 1
            states += more[0].endswith("/newest")
    require(named == 3 * states and not unsynced_names, f"{named} files of {states} states, {unsynced_names}")
    return states


def check_killed(folder, reference, kills):
    """Returns what was found: kind -> number."""
    found = {}
    for path in files_below(folder):
        kind, full = kind_of(path), os.path.join(folder, path)
        found[kind] = found.get(kind, 0) + 1
        if kind in ("state", "dump"):
            check_safetensors(full)
            require(read_bytes(full) == reference.bytes[path], f"{full}: not as in the run that nobody killed")
        elif kind == "metrics":
            steps, _, _, broken = metrics(full)
            require(broken <= kills, f"{full}: {broken} lines that are none after {kills} kills")
            found["broken lines"] = found.get("broken lines", 0) + broken
            for iteration, lines in steps.items():
                require(lines == reference.steps[path][iteration], f"{full}: iteration {iteration} has other lines")
            require(list(steps) == list(reference.steps[path])[: len(steps)], f"{full}: misses an iteration")
        elif kind == "text":
            lines, _ = text_log(full)
            require(_is_beginning(lines, reference.text[path]), f"{full}: a line too many, too few, or other")
        elif kind == "flight":
            data = read_bytes(full)
            require(len(data) in reference.flight_bytes, f"{full}: {len(data)} bytes")
        elif kind == "run":
            ids = [run["run_id"] for run in json.loads(read_bytes(full))["runs"]]
            require(len(ids) == len(set(ids)), f"{full}: a run twice")
        elif kind == "manifest":
            for file, (status, _) in _written(full, kills).items():
                there = os.path.join(os.path.dirname(full), file)
                require(status != "written" or os.path.exists(there), f"{there}: is said to be written")
        elif kind == "event":
            lines = _event_lines(full)
            require(set(lines) <= set(reference.events[path]), f"{full}: lines that the other run has not")
        elif kind == "event state":
            json.loads(read_bytes(full))
        elif kind == "newest":
            name = read_bytes(full).decode()
            require(re.fullmatch(r"iter_\d{6}\n", name), f"{full}: {name!r}")
            wanted = [p for p in reference.bytes if p.startswith(f"states/{name.strip()}/")]
            for state in wanted:
                require(os.path.exists(os.path.join(folder, state)), f"{full} names a state without {state}")
    return found


def check_finished(folder, reference, lives):
    """Nothing is missing, nothing is there twice, and every bit is that of the run that nobody killed."""
    check_killed(folder, reference, lives)
    files = {path: kind_of(path) for path in files_below(folder)}
    varied = ("tensorboard",)
    ours, theirs = ({p for p, kind in of.items() if kind not in varied} for of in (files, reference.files))
    require(ours == theirs, f"{folder}: has {sorted(ours - theirs)} and lacks {sorted(theirs - ours)}")
    last = json.loads(read_bytes(os.path.join(folder, "log/run.json")))["runs"][-1]["last_iteration"]
    for path, steps in reference.steps.items():
        found, runs, ended, _ = metrics(os.path.join(folder, path))
        require(found == steps, f"{folder}/{path}: other steps")
        # A run may have been killed between saying its end and closing run.json; the one after it says its own.
        ends = ended[-1] == (runs[-1], last) and {iteration for _, iteration in ended} == {last}
        require(ends and len(dict(ended)) == len(ended), f"{folder}/{path}: ends of runs {ended}")
    for path, lines in reference.text.items():
        require(text_log(os.path.join(folder, path)) == (lines, False), f"{folder}/{path}: other lines")
    for path, entries in reference.manifests.items():
        require(_written(os.path.join(folder, path), lives) == entries, f"{folder}/{path}: other entries")
    for where, values in reference.tensorboard.items():
        found, _ = event_values(os.path.join(folder, where))
        require(found == values, f"{folder}/{where}: {len(found)} values, {len(values)} in the other run")
    for path, lines in reference.events.items():
        # What led to an event begins with the restart before it; the events themselves are the same.
        own = [line for line in _event_lines(os.path.join(folder, path)) if b'"event":' in line]
        require(own == [line for line in lines if b'"event":' in line], f"{folder}/{path}: other events")
    runs = json.loads(read_bytes(os.path.join(folder, "log/run.json")))["runs"]
    states = [run["state"] for run in runs]
    # One that was killed when all was done is closed, too, and the one after it has nothing left to do.
    done = all(run["last_iteration"] == last for run in runs if run["state"] == "closed")
    require(states[-1] == "closed" and done, f"{folder}/log/run.json: {states}")
    require(len(runs) <= lives, f"{folder}/log/run.json: {len(runs)} runs of {lives} starts")


def check_with_readers(folder, reference, program, amaxscope):
    """The project's own readers see the same: the Python package, and check-records."""
    import subprocess

    log = os.path.join(folder, "log")
    run = amaxscope.read(log)
    other = amaxscope.read(os.path.join(reference.folder, "log"))
    rows = [
        sorted(zip(*(map(str, one[column]) for column in ("iteration", "layer", "tensor", "phase", "statistic", "value"))))
        for one in (run, other)
    ]
    require(rows[0] and rows[0] == rows[1], f"{log}: other rows than in the run that nobody killed")
    require([s for s in run.scalars if "checked/" not in s[1]] == [s for s in other.scalars if "checked/" not in s[1]], f"{log}: scalars differ")
    require(len(run.events) == len(other.events), f"{log}: {len(run.events)} events, {len(other.events)} in the other run")
    check = subprocess.run([program, "check-records", log], capture_output=True, text=True, check=False)
    unreadable = re.compile(r"cut off|not the end|ends here|no JSON")
    notes = ("run ", f"{log}: ")  # that a run is not closed, and the sum
    bad = [line for line in check.stderr.splitlines() if not line.startswith(notes) and not unreadable.search(line)]
    cut = not bad and check.returncode == 1
    require(check.returncode == 0 or cut, f"check-records {log}: {check.returncode} {check.stderr}")
