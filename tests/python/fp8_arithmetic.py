"""FP8 by plain arithmetic of numpy, for expected values that owe nothing to the library or to torch."""

import numpy as np


def table(exponent_bits, mantissa_bits, bias, largest):
    """All finite non-negative values, ascending; the index is the code."""
    found = []
    for code in range(1 << (exponent_bits + mantissa_bits)):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        value = fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
        if value <= largest:
            found.append(value)
    return np.array(found)


E4M3, E5M2 = table(4, 3, 7, 448.0), table(5, 2, 15, 57344.0)


def rounded(x, codes):
    """Nearest, a tie to the even code, saturating."""
    magnitude = np.abs(np.asarray(x, dtype=np.float64))
    above = np.clip(np.searchsorted(codes, magnitude), 0, len(codes) - 1)
    below = np.maximum(above - 1, 0)
    up, down = np.abs(codes[above] - magnitude), np.abs(magnitude - codes[below])
    chosen = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return np.copysign(codes[chosen], x)


def scale_of(amax, codes):
    amax = np.float32(amax)
    return np.float32(1) if amax == 0 or not np.isfinite(amax) else np.float32(codes[-1]) / amax


def through_one_scale(x, codes, scale):
    """float32 arithmetic, as the recipes say: codes * (1 / scale)."""
    scaled = (np.asarray(x, dtype=np.float32) * np.float32(scale)).astype(np.float32)
    return (rounded(scaled, codes).astype(np.float32) * (np.float32(1) / np.float32(scale))).astype(np.float32)


def through_mxfp8(x, codes):
    """Blocks of 32 along rows, a scale 2^e rounded up."""
    x = np.asarray(x, dtype=np.float32)
    blocks = x.reshape(-1, 32)
    amax = np.abs(blocks).max(axis=1, keepdims=True).astype(np.float64)
    exponents = np.where(amax > 0, np.ceil(np.log2(np.where(amax > 0, amax / codes[-1], 1))), 0)
    scales = 2.0**exponents
    return (rounded(blocks / scales, codes) * scales).astype(np.float32).reshape(x.shape)
