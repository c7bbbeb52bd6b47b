"""Partial results of statistics, which add up over micro-batches and ranks in any grouping, and what they come to.

A partial result is a dictionary of numbers as the library's kernels give it; it travels between ranks as such. The meaning of
each statistic is that of the library (docs/features.md): counts are exact, sums are over finite elements, and a NaN shows."""

import math

_INF = math.inf


# ---- moments: of the tensor itself


def merged_moments(a, b):
    """Chan, Golub and LeVeque's update of mean and squared deviations; everything else adds up or is an extreme."""
    result = {key: a[key] + b[key] for key in ("numel", "nan", "inf", "nonzero", "sum", "l1", "sum_squares")}
    result["min"], result["max"] = min(a["min"], b["min"]), max(a["max"], b["max"])
    result["amax_finite"] = max(a["amax_finite"], b["amax_finite"])
    result["amin_nonzero"] = min(a["amin_nonzero"], b["amin_nonzero"])
    own, others = _finite(a), _finite(b)
    if own == 0 or others == 0:
        source = b if own == 0 else a
        result["mean"], result["m2"] = source["mean"], source["m2"]
        return result
    delta = b["mean"] - a["mean"]
    result["mean"] = a["mean"] + delta * (others / (own + others))
    result["m2"] = a["m2"] + b["m2"] + delta * delta * (own * others / (own + others))
    return result


def _finite(moments):
    return moments["numel"] - moments["nan"] - moments["inf"]


MOMENTS = (
    "min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range", "numel", "nonzero", "nan", "inf", "rms",
)  # fmt: skip


def moment_value(name, m):
    """None when there is none: of no element, or the std of one."""
    if name in ("numel", "nan", "inf", "nonzero"):
        return m[name]
    if m["numel"] == 0:
        return None
    finite, infinite = _finite(m), m["inf"] > 0
    if name == "dynamic_range":  # of the finite elements
        if finite == 0:
            return None
        return math.log2(m["amax_finite"]) - math.log2(m["amin_nonzero"]) if m["amax_finite"] > 0 else 0.0
    if m["nan"]:
        return math.nan
    if name in ("min", "max"):
        return m[name]
    if name == "cur_amax":
        return _INF if infinite else m["amax_finite"]
    if name == "mean":
        if infinite:
            return math.nan if m["max"] == _INF and m["min"] == -_INF else (_INF if m["max"] == _INF else -_INF)
        return m["sum"] / finite
    if name == "std":
        if m["numel"] < 2:
            return None
        return math.nan if infinite else math.sqrt(m["m2"] / (finite - 1))
    if infinite:
        return _INF
    return {
        "l1_norm": m["l1"],
        "l2_norm": math.sqrt(m["sum_squares"]),
        "rms": math.sqrt(m["sum_squares"] / finite),
    }[name]


# ---- ranges of blocks: one number, a NaN shows


def merged_range(a, b):
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


# ---- what quantization did

_EXTREMES = {"max_error": max, "scale_min": min, "scale_max": max}


def merged_error(a, b):
    return {key: _EXTREMES[key](a[key], b[key]) if key in _EXTREMES else a[key] + b[key] for key in a}


ERRORS = ("underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse", "sqnr", "cosine", "max_error")


def error_value(name, e):
    if name in ("scale_inv_min", "scale_inv_max"):
        return None if e["scale_max"] == 0 else e["scale_min" if name == "scale_inv_min" else "scale_max"]
    if e["numel"] == 0:
        return None
    if name in ("underflows%", "overflows%"):
        return 100.0 * e[name[:-1]] / e["numel"]
    if e["compared"] == 0:
        return None
    if name == "mse":
        return e["error_squares"] / e["compared"]
    if name == "sqnr":
        return 10 * math.log10(e["signal_squares"] / e["error_squares"]) if e["error_squares"] else _INF
    if name == "cosine":
        norms = math.sqrt(e["signal_squares"]) * math.sqrt(e["quantized_squares"])
        if norms:
            return max(-1.0, min(1.0, e["product"] / norms))
        return 1.0 if e["signal_squares"] == e["quantized_squares"] else 0.0
    return e["max_error"]


# ---- any of them: (kind, result), by their kind

_MERGE = {"moments": merged_moments, "range": merged_range, "error": merged_error}


def merged(a, b):
    """Of two partial results {what: (kind, result)} of one tensor. What only one of them has stays."""
    result = dict(a)
    for what, (kind, value) in b.items():
        result[what] = (kind, _MERGE[kind](result[what][1], value)) if what in result else (kind, value)
    return result
