"""Reads the event files of a run with TensorBoard itself and compares them with the run's records.
usage: read_events.py LOG_DIR"""
import json
import pathlib
import struct
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"SKIPPED: {error}; pip install tensorboard, and name that python in AMAXSCOPE_TEST_PYTHON")
    sys.exit(77)

log_dir = pathlib.Path(sys.argv[1])


def single(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


compared = 0
histograms = 0
for file in sorted((log_dir / "metrics").glob("rank_*.jsonl")):
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    records = [line for line in lines if "stats" in line or "scalars" in line]
    if not records:
        continue
    events = EventAccumulator(str(log_dir / "tensorboard" / file.stem), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    scalars = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    for line in records:
        if "scalars" in line:
            values, place = line["scalars"], ""
        else:
            if line["phase"] == "recompute":
                continue
            values = line["stats"]
            place = f'{line["layer"]}/{line["tensor"]}/' + ("eval/" if line["phase"] == "eval" else "")
        bins = {name: value for name, value in values.items() if name.startswith("histogram_2^")}
        for name, value in values.items():
            if name in bins or name.startswith("histogram_below_2^") or name == "histogram_zero":
                continue
            got = scalars[place + name][line["iteration"]]
            assert got == single(value) or (value == "NaN" and got != got), (place + name, got, value)
            compared += 1
        if bins:
            found = [e for e in events.Histograms(place + "histogram") if e.step == line["iteration"]]
            assert len(found) == 1, place
            value = found[0].histogram_value
            for name, count in bins.items():
                upper = 2.0 ** (int(name[len("histogram_2^"):]) + 1)
                assert value.bucket[list(value.bucket_limit).index(upper)] == count, (place, name)
            histograms += 1
assert compared > 100 and histograms > 5, (compared, histograms)
print(f"{compared} scalars and {histograms} histograms as in the records")
