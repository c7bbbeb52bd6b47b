"""Log directories written by hand, as docs/records.md describes them: what readers are tested against."""

import json
import os


def opening(run_id="run-1", rank=0, version=1):
    return {"schema_version": version, "run_id": run_id, "rank": rank}


def record(iteration, layer="decoder.1.fc1", tensor="activation", phase="forward", **changes):
    line = {
        "iteration": iteration,
        "layer": layer,
        "tensor": tensor,
        "phase": phase,
        "stats": {"cur_amax": 1.0 + iteration, "underflows%": 0.5},
        "flags": {},
        "recipe": "current",
        "format": "E4M3",
        "group": [0, 1],
        "layout": "shard0",
    }
    line.update(changes)
    return line


def step(iteration, *lines):
    return [*lines, {"iteration": iteration, "end_of_step": True, "records": len(lines)}]


def end_of_run(iteration):
    return {"iteration": iteration, "end_of_run": True}


def text_of(*lines):
    flat = []
    for line in lines:
        flat.extend(line if isinstance(line, list) else [line])
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in flat)


def write_rank(directory, rank, *lines, append=False, cut=""):
    """cut: bytes after the last whole line."""
    os.makedirs(os.path.join(directory, "metrics"), exist_ok=True)
    path = os.path.join(directory, "metrics", f"rank_{rank}.jsonl")
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        file.write(text_of(*lines) + cut)
    return path


def write_run_file(directory, *runs):
    """runs: (run_id, state)."""
    os.makedirs(directory, exist_ok=True)
    entries = [{"run_id": name, "state": state, "world_size": 2} for name, state in runs]
    with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "runs": entries}, file)
