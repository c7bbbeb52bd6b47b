"""What the tests of the package share: FP8 worked out by hand, configs, and the records of a run."""

import json
import math
import pathlib
import struct
import tempfile

STATISTICS = """
all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [cur_amax]
      freq: 2
"""


def f32(value: float) -> float:
    """Rounded to a float of 32 bits."""
    return struct.unpack("f", struct.pack("f", value))[0]


def fp8_value(code: int, exponent_bits: int) -> float:
    """Of an e4m3 (4) or e5m2 (5) code."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = (code & 0x7F) >> mantissa_bits
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    if exponent_bits == 4 and code & 0x7F == 0x7F:
        return math.nan
    if exponent_bits == 5 and exponent == 31:
        return math.inf if fraction == 0 else math.nan
    size = math.ldexp(1 + fraction, exponent - bias) if exponent else math.ldexp(fraction, 1 - bias)
    return -size if code & 0x80 else size


def fp8_code(value: float, exponent_bits: int = 4) -> int:
    """The nearest code; of two the even one; the largest for what is beyond."""
    codes = [code for code in range(0x80) if math.isfinite(fp8_value(code, exponent_bits))]
    size = abs(value)
    nearest = min(codes, key=lambda code: (abs(fp8_value(code, exponent_bits) - size), code & 1))
    return nearest | (0x80 if math.copysign(1, value) < 0 else 0)


class TemporaryFolder(tempfile.TemporaryDirectory):
    def __enter__(self) -> pathlib.Path:
        return pathlib.Path(super().__enter__())


def records(log_dir, rank: int = 0) -> list:
    """The lines of a run that are records of tensors."""
    text = (pathlib.Path(log_dir) / "metrics" / f"rank_{rank}.jsonl").read_text(encoding="utf-8")
    return [line for line in map(json.loads, text.splitlines()) if "stats" in line]


def lines(log_dir, rank: int = 0) -> list:
    text = (pathlib.Path(log_dir) / "metrics" / f"rank_{rank}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
