"""Tensors of other libraries as views, and the library's own arrays as theirs.

A tensor comes in without a copy, whoever made it: an array of numpy (also of ml_dtypes' types), a tensor of torch, anything with
DLPack or Python's buffer protocol, or a plain pointer (View). Nothing is imported for it. All dimensions but the last are one,
of rows: [sequence, batch, hidden] is a matrix of sequence x batch rows. Rows may be padded; elements of a row lie side by side.
What lies otherwise is a TensorError that says so; contiguous() makes a copy that is taken.
"""

from __future__ import annotations

from typing import Any, Sequence

from ._native import Array, View, contiguous_copy, parts_of_buffer, parts_of_dlpack
from .errors import TensorError

# What libraries call the types that amaxscope knows, without the name of the library before it.
_DTYPES = {
    "float64": "f64", "double": "f64",
    "float32": "f32", "float": "f32",
    "float16": "f16", "half": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "e8m0",
    "uint8": "u8",
    "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64",
}  # fmt: skip
# Types that numpy has not, as ml_dtypes and torch call them.
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu"}


def dtype_of(name: str, what: str = "the tensor") -> str:
    """amaxscope's word ("bf16") for a name of numpy's, torch's or ml_dtypes' ("torch.bfloat16"), or for itself."""
    short = name.rsplit(".", 1)[-1]
    word = _DTYPES.get(short, short)
    if word not in _DTYPES.values():
        known = ", ".join(sorted(set(_DTYPES.values())))
        raise TensorError(f"{what} is of the type {name}, which amaxscope does not know; known are {known}")
    return word


def view_of(tensor: Any, name: str = "the tensor") -> View:
    """A tensor as a View over the same memory. name is what messages call it.

    Raises TensorError for a type, place or layout that does not fit.
    """
    if isinstance(tensor, View):
        return tensor
    pointer, dtype, shape, strides, writable, owner = _parts_of(tensor, name)
    return View(pointer, dtype, shape, strides, writable, owner, name)


def contiguous(tensor: Any, name: str = "the tensor") -> Array:
    """A copy whose rows lie one after the other, of a tensor with any strides (transposed, sliced, reversed)."""
    pointer, dtype, shape, strides, _, _ = _parts_of(tensor, name)
    return contiguous_copy(pointer, dtype, shape, strides)


def codes(tensor: Any, dtype: str, name: str = "the tensor") -> View:
    """Bytes as what they stand for: codes(x, "e4m3") of a uint8 array. dtype: e4m3, e5m2 or e8m0."""
    if dtype not in ("e4m3", "e5m2", "e8m0"):
        raise TensorError(f"dtype is {dtype!r}; bytes are taken as e4m3, e5m2 or e8m0")
    pointer, own, shape, strides, writable, owner = _parts_of(tensor, name)
    if own != "u8":
        raise TensorError(f"{name} is {own}; bytes (u8) are taken as {dtype}")
    return View(pointer, dtype, shape, strides, writable, owner, name)


def to_numpy(array: Array) -> Any:
    import numpy

    bits = numpy.asarray(array)
    if array.dtype in _ML_DTYPES:
        import ml_dtypes

        return bits.view(getattr(ml_dtypes, _ML_DTYPES[array.dtype]))
    return bits


def to_torch(array: Array) -> Any:
    import torch

    tensor = torch.from_dlpack(array if array.writable else array.copy())
    return tensor.view(getattr(torch, _ML_DTYPES[array.dtype])) if array.dtype in _ML_DTYPES else tensor


def _parts_of(x: Any, name: str) -> tuple:
    """pointer, dtype, shape, strides in elements, writable, and who keeps the memory."""
    if isinstance(x, View):
        return x.pointer, x.dtype, [x.rows, x.cols], [x.row_stride, 1], x.writable, x.owner
    if isinstance(x, Array):
        return x.pointer, x.dtype, list(x.shape), _contiguous(x.shape), x.writable, x
    if hasattr(x, "__array_interface__"):  # numpy, also of types that its DLPack and buffers do not know
        own = x.__array_interface__
        pointer, read_only = own["data"]
        shape = list(own["shape"])
        strides = _contiguous(shape) if own["strides"] is None else _elements(own["strides"], x.dtype.itemsize, name)
        return pointer, dtype_of(x.dtype.name, name), shape, strides, not read_only, x
    if hasattr(x, "data_ptr") and hasattr(x, "stride"):  # torch, whose DLPack refuses what requires a gradient
        if str(x.device) != "cpu":
            raise TensorError(f"{name} is on {x.device}; this package takes tensors in host memory: hand in a copy there")
        kept = x.detach() if hasattr(x, "detach") else x  # keeps the memory, also when a parameter gets another
        return x.data_ptr(), dtype_of(str(x.dtype), name), list(x.shape), list(x.stride()), True, kept
    if hasattr(x, "__dlpack__"):
        if hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] != 1:
            raise TensorError(f"{name} is on a device; this package takes tensors in host memory: hand in a copy there")
        try:
            capsule = x.__dlpack__(max_version=(1, 0))
        except TypeError:  # from before DLPack 1.0
            capsule = x.__dlpack__()
        return parts_of_dlpack(capsule, name)
    try:
        memoryview(x)
    except TypeError:
        raise TensorError(
            f"{name} is a {type(x).__name__}; taken are arrays of numpy, tensors of torch, what has DLPack or the buffer "
            "protocol, and amaxscope.View"
        ) from None
    return parts_of_buffer(x, name)


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return strides


def _elements(strides: Sequence[int], item: int, name: str) -> list[int]:
    if any(stride % item for stride in strides):
        raise TensorError(f"{name} has strides of {list(strides)} bytes, which are no whole elements of {item} bytes")
    return [stride // item for stride in strides]
