"""The two passes of a tensor-parallel linear layer, in the order of Megatron: quantize, gather, multiply, show, reduce.

y = x weight^T. Column parallel splits the rows of the weight: [N/t, K], x [M, K], y [M, N/t]. Row parallel splits its columns:
[N, K/t], x [M, K/t], y [M, N], summed over tp. With sequence parallelism x of a column-parallel layer and y of a row-parallel one
hold this rank's slice of the M rows. A bias stays the caller's.

Works on any matrices that tensors.view_of() takes. Who makes new ones and sums them over tp is handed in, so that this file knows
no library.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from .session import Layer, Quantized, multiply


class Arrays(NamedTuple):
    """What the passes need of a library."""

    empty: Callable[[int, int, Any], Any]
    """A contiguous matrix of rows x cols, of the type of a given one."""
    empty_f32: Callable[[int, int], Any]
    all_reduce: Callable[[Any], None]
    """Sum over tp, in place."""
    reduce_scatter: Callable[[Any], Any]
    """This rank's rows of the sum over tp."""


class Saved(NamedTuple):
    """What backward needs of its forward."""

    activation: Quantized
    weight_operand: Quantized
    x: Any
    weight: Any


class Passes:
    """Of one layer on one rank. forward and backward are collective over tp."""

    def __init__(self, layer: Layer, parallel: str, sequence_parallel: bool, arrays: Arrays) -> None:
        self._layer = layer
        self._column = parallel == "column"
        self._split = parallel != "none"
        self._sequence_parallel = sequence_parallel
        self._arrays = arrays
        self._weight: Optional[Quantized] = None

    def forward(
        self, x: Any, weight: Any, *, phase: str = "forward", microbatch: int = 0, save: bool = True
    ) -> tuple[Any, Optional[Saved]]:
        """y, and what backward() needs. The weight is quantized in micro-batch 0 and kept for the others. x and weight stay as
        they are until backward."""
        activation = self._quantize("activation", x, phase, microbatch)
        operand = self._weight_operand(weight, phase, microbatch)
        rows = activation.shape[0]
        y = self._arrays.empty(rows, weight.shape[0], x)
        multiply("fprop", activation, operand, out=y)
        self._layer.result(
            "output", y, a=activation, b=operand, original_a=x, original_b=weight, phase=phase, microbatch=microbatch
        )
        if self._split and not self._column:
            y = self._reduce(y)
        if not save:
            return y, None
        activation.keep(columnwise=True)
        return y, Saved(activation, operand, x, weight)

    def backward(
        self, dy: Any, saved: Saved, *, microbatch: int = 0, want_dx: bool = True, want_dweight: bool = True
    ) -> tuple[Any, Any]:
        """dx, of the type of x, and dweight in f32; None for what is not wanted."""
        layer, operand = self._layer, saved.weight_operand
        gradient = self._quantize("gradient", dy, "backward", microbatch)
        dx = dweight = None
        layer.reuse("weight", saved.weight, operand, phase="backward", microbatch=microbatch)
        if want_dx:
            dx = self._arrays.empty(gradient.shape[0], saved.weight.shape[1], saved.x)
            multiply("dgrad", gradient, operand, out=dx)
            layer.result(
                "dgrad", dx, a=gradient, b=operand, original_a=dy, original_b=saved.weight, microbatch=microbatch
            )
            if self._column:
                dx = self._reduce(dx)
        if want_dweight:
            dweight = self._arrays.empty_f32(saved.weight.shape[0], saved.weight.shape[1])
            multiply("wgrad", gradient, saved.activation, out=dweight)
            layer.result(
                "wgrad",
                dweight,
                a=gradient,
                b=saved.activation,
                original_a=dy,
                original_b=saved.x,
                microbatch=microbatch,
            )
        return dx, dweight

    def _quantize(self, tensor: str, x: Any, phase: str, microbatch: int) -> Quantized:
        quantized = self._layer.quantize(
            tensor, x, columnwise=phase != "evaluation", phase=phase, microbatch=microbatch
        )
        if not self._layer.gathers(tensor):
            return quantized
        return self._layer.gather(tensor, quantized, columnwise=phase != "evaluation")

    def _weight_operand(self, weight: Any, phase: str, microbatch: int) -> Quantized:
        is_first_use = microbatch == 0 and phase != "recompute"
        if self._weight is None or is_first_use or (phase != "evaluation" and not self._weight.columnwise):
            self._weight = self._layer.quantize(
                "weight", weight, columnwise=phase != "evaluation", phase=phase, microbatch=microbatch
            )
        else:
            self._layer.reuse("weight", weight, self._weight, phase=phase, microbatch=microbatch)
        return self._weight

    def _reduce(self, summand: Any) -> Any:
        if self._sequence_parallel:
            return self._arrays.reduce_scatter(summand)
        self._arrays.all_reduce(summand)
        return summand
