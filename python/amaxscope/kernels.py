"""Arithmetic on tensors without a session: what the library's statistics and quantizers are made of.

All take what tensors.view_of() takes, f32, f16 or bf16, and leave the interpreter's lock free while they compute.
"""

from __future__ import annotations

from typing import Any, Union

from . import _native
from ._native import Array
from .tensors import view_of


def amax(x: Any) -> float:
    """max |x| over the elements that are not NaN; 0 when there is none."""
    return _native.amax(view_of(x, "x"))


def statistics(x: Any) -> dict[str, Union[int, float]]:
    """numel, nan, inf, nonzero, min, max, amax_finite, amin_nonzero, and of the finite elements sum, l1, sum_squares, mean and
    the sums of powers of deviations m2, m3, m4, in double."""
    return _native.statistics(view_of(x, "x"))


def cast(x: Any, dtype: str, scale: float = 1.0) -> Array:
    """FP8 codes ("e4m3", "e5m2") of x * scale, saturating, to nearest, ties to even; or x in f32, f16 or bf16."""
    return _native.cast(view_of(x, "x"), dtype, scale)


def dequantize(codes: Any, scale_inv: float, dtype: str = "f32") -> Array:
    """codes * scale_inv. codes: an Array of e4m3 or e5m2, or tensors.codes() of bytes."""
    return _native.dequantize(view_of(codes, "codes"), scale_inv, dtype)


def cast_error(x: Any, format: str, scale: float) -> dict[str, Union[int, float]]:
    """What cast(x, format, scale) does to x: underflows, overflows, saturated, error_squares, signal_squares, max_error, ..."""
    return _native.cast_error(view_of(x, "x"), format, scale)
