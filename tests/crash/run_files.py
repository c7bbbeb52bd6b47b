"""What a run leaves on disk, read without a line of the project's own readers. Every function raises Damaged for what no
kill may leave; what a kill may leave (a last line without its end, an event file that is cut off) is returned as such."""

import json
import os
import re
import struct

LEFTOVER = re.compile(r"\.amaxscope-.*\.tmp")  # files that were being written; see runtime/storage/file.hpp


class Damaged(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Damaged(what)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def check_safetensors(path):
    """Header, offsets without gaps, and not a byte more or less."""
    data = read_bytes(path)
    require(len(data) >= 8, f"{path}: {len(data)} bytes")
    length = struct.unpack("<Q", data[:8])[0]
    require(length <= len(data) - 8, f"{path}: the header is cut off")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    end = 0
    for begin, stop in sorted(entry["data_offsets"] for entry in header.values()):
        require(begin == end, f"{path}: a gap at {end}")
        end = stop
    require(8 + length + end == len(data), f"{path}: {len(data)} bytes, {8 + length + end} were announced")


def json_lines(path):
    """(objects, lines that are none, whether the last line lacks its end). Lines that are none were cut off by a kill."""
    data = read_bytes(path)
    lines = data.split(b"\n")
    cut = lines.pop() != b""
    objects, broken = [], 0
    for line in lines:
        try:
            objects.append((line, json.loads(line)))
        except ValueError:
            broken += 1
    return objects, broken, cut


def _uncounted(line, content):
    """A line without the numbers of checks that InvariantGuard made: it has more to compare after a restart, and less."""
    if "scalars" not in content:
        return line
    kept = {name: value for name, value in content["scalars"].items() if not name.startswith("checked/")}
    return json.dumps({"iteration": content["iteration"], "scalars": kept}).encode()


def metrics(path):
    """(iteration -> lines of its step, runs that were opened, runs that said their end, broken lines). The lines of a step
    are sorted: which layer comes first depends on where the run began."""
    objects, broken, cut = json_lines(path)
    steps, runs, ended, pending = {}, [], [], []
    for line, content in objects:
        if "schema_version" in content:
            require(content["run_id"] not in runs, f"{path}: run {content['run_id']} twice")
            runs.append(content["run_id"])
            pending = []  # what a kill had cut off
        elif "end_of_run" in content:
            ended.append((runs[-1], content["iteration"]))
        else:
            pending.append(_uncounted(line, content))
            if "end_of_step" not in content:
                continue
            require(content["records"] == len(pending) - 1, f"{path}: {content} after {len(pending) - 1} lines")
            iteration = content["iteration"]
            require(iteration not in steps, f"{path}: iteration {iteration} twice")
            require(not steps or iteration > max(steps), f"{path}: iteration {iteration} after {max(steps, default=0)}")
            steps[iteration] = sorted(pending)
            pending = []
    return steps, runs, ended, broken + cut


def text_log(path):
    """The lines of each iteration without their time stamps, sorted, in the order of iterations, and whether the last line
    lacks its end."""
    lines = read_bytes(path).decode().split("\n")
    cut = lines.pop() != ""
    for line in lines:
        require(
            re.fullmatch(r"[-\d]{10} [:,\d]{12} - INFO - \S.* \t+ iteration=\d{6,} \t+ value=\S+", line),
            f"{path}: no line of statistics: {line!r}",
        )
    return sorted((line[26:] for line in lines), key=lambda line: (line[line.index("iteration=") :][10:16], line)), cut


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def _masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def _fields(message):
    """(number, value) of a protobuf message: an int for varints, bytes for the rest."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}[kind] if kind != 2 else varint()
            yield key >> 3, message[at : at + size]
            at += size


def _event(message):
    event = {"step": 0, "values": {}}
    for number, value in _fields(message):
        if number == 2:
            event["step"] = value
        elif number == 3:
            event["version"] = value
        elif number == 5:
            for _, entry in _fields(value):
                parts = dict(_fields(entry))
                event["values"][parts.pop(1).decode()] = parts
        elif number == 7:
            event["started"] = dict(_fields(value)).get(1) == 1
    return event


def event_file(path):
    """(events, whether the file ends within one)."""
    data = read_bytes(path)
    events, at = [], 0
    while at < len(data):
        if len(data) - at < 12:
            return events, True
        length, crc = struct.unpack("<QI", data[at : at + 12])
        require(crc == _masked_crc(data[at : at + 8]), f"{path}: a wrong checksum at {at}")
        if len(data) - at < 16 + length:
            return events, True
        message = data[at + 12 : at + 12 + length]
        (crc,) = struct.unpack("<I", data[at + 12 + length : at + 16 + length])
        require(crc == _masked_crc(message), f"{path}: a wrong checksum at {at}")
        events.append(_event(message))
        at += 16 + length
    return events, False


def event_values(folder):
    """(tag, step) -> value, as TensorBoard shows the files of a folder: one that says that it was started at a step takes
    the place of what earlier ones have from there on."""
    values = {}
    cut = 0
    for name in sorted(os.listdir(folder), key=lambda name: os.stat(os.path.join(folder, name)).st_mtime_ns):
        events, ends_within = event_file(os.path.join(folder, name))
        cut += ends_within
        for event in events:
            if event.get("started"):
                values = {key: value for key, value in values.items() if key[1] < event["step"]}
            for tag, value in event["values"].items():
                if tag.startswith("checked/"):
                    continue  # see _uncounted()
                require((tag, event["step"]) not in values, f"{folder}/{name}: {tag} at {event['step']} twice")
                values[tag, event["step"]] = value
    return values, cut


def files_below(folder):
    """Paths relative to the folder, sorted."""
    found = []
    for where, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(where, name), folder) for name in names]
    return sorted(found)


def leftovers(folder):
    return [path for path in files_below(folder) if LEFTOVER.fullmatch(os.path.basename(path))]
