"""From tensors of a training to partial results, by the kernels of the library. A tensor on a device is copied to the host,
which is what a due iteration costs there."""

import math

import torch

from amaxscope import _native, tensors
from amaxscope.session import Quantizer

# What the statistics' names call a recipe, and the library's word.
RECIPES = {
    "fp8_delayed_scaling": "delayed",
    "fp8_current_scaling": "current",
    "mxfp8": "mxfp8",
    "fp8_block_scaling": "block",
    "nvfp4": "nvfp4",
}
_OF_QUANTIZER = {
    "Float8Quantizer": "fp8_delayed_scaling",
    "Float8CurrentScalingQuantizer": "fp8_current_scaling",
    "MXFP8Quantizer": "mxfp8",
    "Float8BlockQuantizer": "fp8_block_scaling",
    "NVFP4Quantizer": "nvfp4",
}
_PER_TENSOR = ("fp8_delayed_scaling", "fp8_current_scaling")


def recipe_of(quantizer):
    """Of one of TransformerEngine's quantizers; None without one, or for a kind that is not known."""
    for kind in type(quantizer).__mro__:
        if kind.__name__ in _OF_QUANTIZER:
            return _OF_QUANTIZER[kind.__name__]
    return None


def format_of(quantizer, recipe, tensor_name):
    """e4m3, e5m2 or e2m1."""
    if recipe == "nvfp4":
        return "e2m1"
    said = str(getattr(quantizer, "dtype", ""))
    if recipe in _PER_TENSOR and recipe_of(quantizer) in _PER_TENSOR and said:
        return "e5m2" if "E5M2" in said else "e4m3"
    return "e5m2" if recipe in _PER_TENSOR and tensor_name in ("gradient", "dgrad", "wgrad") else "e4m3"


def on_host(tensor):
    """The same numbers as a matrix with rows one after the other, in a type that the kernels take."""
    tensor = tensor.detach()
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        tensor = tensor.float()
    return tensor.cpu().contiguous()


def moments(x):
    found = _native.statistics(tensors.view_of(x))
    return {key: value for key, value in found.items() if key not in ("m3", "m4")}


def blockwise_range(x, block, dims, both):
    return _native.blockwise_range(tensors.view_of(x), block, dims, both)


def error_of_operand(x, operand, recipe, form):
    """Of FP8 codes under one scale that the training itself made; None when they are not there to look at."""
    codes, scale_inv = getattr(operand, "_data", None), getattr(operand, "_scale_inv", None)
    if codes is None or scale_inv is None or scale_inv.numel() != 1 or codes.numel() != x.numel():
        return None
    scale_inv = float(scale_inv)
    view = tensors.codes(codes.detach().view(torch.uint8).reshape(x.shape).cpu().contiguous(), form)
    found = _native.error_of_codes(tensors.view_of(x), view, _float32(1.0 / scale_inv), scale_inv)
    found["scale_min"] = found["scale_max"] = scale_inv
    return overflows_of(found, recipe)


def error_of_recipe(x, recipe, tensor_name, form, direction):
    """Of what the library's quantizer of a recipe makes of the tensor."""
    columnwise = direction == "columnwise"
    one_scale = recipe in _PER_TENSOR
    numel = x.numel()
    x = padded(x, RECIPES[recipe])
    quantizer = Quantizer(RECIPES[recipe], tensor_name, format=None if recipe == "nvfp4" else form)
    made = quantizer.quantize(x, rowwise=one_scale or not columnwise, columnwise=columnwise)
    found = _native.error_of_quantized(tensors.view_of(x), made._native, direction)
    if one_scale:
        found["scale_min"] = found["scale_max"] = made.operand("rowwise").scale_inv
    for key in ("numel", "compared"):
        found[key] -= x.numel() - numel
    return {key: value for key, value in overflows_of(found, recipe).items() if not key.endswith("blocks")}


def overflows_of(found, recipe):
    """Delayed scaling: beyond the largest value before the cast. Other recipes: rounding past it."""
    return found if recipe == "fp8_delayed_scaling" else {**found, "overflows": found["saturated"]}


# What the recipes ask of both extents of a matrix.
_MULTIPLES = {"mxfp8": 32, "nvfp4": 16}


def padded(x, recipe):
    """As a matrix of extents that a recipe (the library's word) takes. Zeros change no scale and make no error."""
    x = x.reshape(-1, x.shape[-1] if x.dim() else 1)
    multiple = _MULTIPLES.get(recipe, 1)
    below, beside = -x.shape[0] % multiple, -x.shape[1] % multiple
    return torch.nn.functional.pad(x, (0, beside, 0, below)) if below or beside else x


def _float32(value):
    value = float(torch.tensor(value, dtype=torch.float64).to(torch.float32))
    return value if math.isfinite(value) else torch.finfo(torch.float32).max
