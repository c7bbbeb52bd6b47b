"""The debug session and its layers. A session belongs to one training on each rank; docs/python.md shows one.

Threads: a session and what belongs to it is used by one thread at a time; a second one gets a UsageError. The interpreter's lock is
free while the library computes or talks to other ranks, and taken again for callbacks.
Blocking: opening with a config, freeze(), step() with something due, weights_are_final(), and quantizing where ranks share a
scale talk to the other ranks of a group; everything else is local.
Memory: tensors are borrowed during a call (tensors.py says what may be one). Where an operand stays in high precision, it goes on
pointing to the tensor that was handed in, and keeps it alive: do not overwrite that tensor before the operand's last use.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

from . import _native
from ._native import Array, Operand
from .errors import Stopped, UsageError
from .groups import Group
from .tensors import view_of

Tensor = Any
"""An array of numpy, a tensor of torch, or whatever else tensors.view_of() takes."""


class Preset(NamedTuple):
    """A debug config that needs no writing."""

    name: str
    summary: str
    yaml: str


def presets() -> list[Preset]:
    """Those that Session(preset=...) knows."""
    return [Preset(*preset) for preset in _native.presets()]


class Session:
    """What watches a training. On every rank of world, with the same arguments; collective over world.

    config    path of the debug YAML, or its contents as a mapping; or config_text, or preset (see presets()). None of
              them: nothing is observed, and layers have their recipes.
    log_dir   where records go; None: no files.
    world     the ranks of the job (groups.py); None: one rank. tp_size, cp_size and pp_size are Megatron's: tp varies fastest,
              then cp, dp, pp.
    first_iteration  of a training that is resumed.
    deadline  seconds that ranks may wait for one another, where the group can poll.
    on_failure  "by_config": stop observing when everything configured only observes, else abort the job; "detach"; "abort".
    amax_scope  whose scales features share: "tensor" (of all ranks that hold parts of it), "te" (as TransformerEngine's
              recipes), "local".
    strict    a section of the config that matches no layer is an error.
    log_all_ranks  records of every rank of a group instead of its lowest. count_replicas: every replica of a tensor counts
              in sums, as in TransformerEngine.
    poll_every, watch_config, replaceable_config, dump_on_signal  as docs/live.md has them: iterations between polls of the ranks
              (0: 1 when findings set off the job, else 10), an edited config file takes effect, replace_config() may be
              called, SIGUSR1 asks for the state of the runtime.

    As a context manager it is closed at the end; after an exception (other than Stopped) the run stays marked as not closed.
    """

    def __init__(
        self,
        config: Union[str, os.PathLike, Mapping[str, Any], None] = None,
        *,
        config_text: Optional[str] = None,
        preset: Optional[str] = None,
        log_dir: Union[str, os.PathLike, None] = None,
        world: Optional[Group] = None,
        tp_size: int = 1,
        cp_size: int = 1,
        pp_size: int = 1,
        first_iteration: int = 0,
        deadline: float = 600.0,
        on_failure: str = "by_config",
        amax_scope: str = "tensor",
        strict: bool = False,
        log_all_ranks: bool = False,
        count_replicas: bool = False,
        poll_every: int = 0,
        watch_config: bool = False,
        replaceable_config: bool = False,
        dump_on_signal: bool = False,
    ) -> None:
        if isinstance(config, Mapping):
            if config_text is not None:
                raise UsageError("config and config_text are both given; one of them is the config")
            config, config_text = None, json.dumps(config)
        self._native = _native.Session(
            None if config is None else os.fspath(config),
            config_text,
            preset,
            None if log_dir is None else os.fspath(log_dir),
            None if world is None else world._native,
            {
                "first_iteration": first_iteration,
                "deadline": deadline,
                "on_failure": on_failure,
                "amax_scope": amax_scope,
                "tp_size": tp_size,
                "cp_size": cp_size,
                "pp_size": pp_size,
                "strict": strict,
                "log_all_ranks": log_all_ranks,
                "count_replicas": count_replicas,
                "poll_every": poll_every,
                "watch_config": watch_config,
                "replaceable_config": replaceable_config,
                "dump_on_signal": dump_on_signal,
            },
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type], exception: Any, traceback: Any) -> None:
        if kind is None or issubclass(kind, Stopped):
            self.close()
        else:
            self._native.abandon()

    def layer(
        self,
        name: str,
        number: Optional[int] = None,
        *,
        parallel: str = "none",
        sequence_parallel: bool = False,
        expert: Optional[int] = None,
        recipe: str = "none",
        dtype: str = "f32",
        tp_group: Optional[Group] = None,
    ) -> Layer:
        """Registers a GEMM layer: before the first step, alike on all ranks of a pipeline stage.

        name      in full, as the config's patterns see it: "decoder.layers.1.mlp.linear_fc1".
        number    of the transformer layer, from 1. expert: index among the experts of all ranks.
        parallel  "none", "column" or "row": how the weight is split over tp.
        sequence_parallel  rows between the tensor-parallel regions are split over tp.
        recipe    what quantize() makes where the config asks for nothing else: "none" (high precision), "delayed",
                  "current", "mxfp8", "block" or "nvfp4".
        dtype     "f32", "f16" or "bf16": what the layer computes in.
        tp_group  instead of the session's own.
        """
        native = _native.Layer(
            self._native,
            name,
            number,
            expert,
            parallel,
            sequence_parallel,
            recipe,
            dtype,
            None if tp_group is None else tp_group._native,
        )
        return Layer(native, name)

    def observe(
        self,
        name: str,
        kind: str,
        x: Tensor,
        *,
        layout: str = "replicated",
        phase: str = "forward",
        microbatch: int = 0,
    ) -> None:
        """Shows a tensor that is no operand of a GEMM, for sections with `observe:`.

        kind    "residual", "norm_weight", "logits", "parameter", ...
        layout  over tp: "replicated", "shard0" (rows), "shard1" (columns) or "partial" (a summand).
        """
        self._native.observe(name, kind, view_of(x, "x"), layout, phase, microbatch)

    def observes_update(self, name: str, *, layout: str = "replicated") -> bool:
        """Whether observe_update() of this name would do anything in this iteration: ask before computing what it takes."""
        return self._native.observes_update(name, layout)

    def observe_update(
        self,
        name: str,
        before: Tensor,
        update: Tensor,
        *,
        layout: str = "replicated",
        normalized_gradient: Optional[Tensor] = None,
    ) -> None:
        """What an optimizer step is about to do to a parameter, as an observed tensor of the kind "update".

        before: the weight as it is stored; update: f32 or f64, what will be added to it, not yet rounded to the weight's type;
        normalized_gradient: g / sqrt(v) of Adam.
        """
        gradient = None if normalized_gradient is None else view_of(normalized_gradient, "normalized_gradient")
        self._native.observe_update(name, view_of(before, "before"), view_of(update, "update"), layout, gradient)

    def replace_config(self, text: str) -> None:
        """Another config for all ranks: the text counts on rank 0 of world and is taken at the iteration after the next poll,
        everywhere or nowhere. Raises ConfigError for one that is not valid. Needs replaceable_config."""
        self._native.replace_config(text)

    def scalar(self, name: str, value: float) -> None:
        """The loss, a norm, a learning rate: written with this iteration by rank 0."""
        self._native.scalar(name, float(value))

    def weights_are_final(self) -> None:
        """No weight changes until the next step(): amaxes of all weights given by Layer.set_weight() are reduced in one call.

        Every rank calls it at the same point of each step, or none does.
        """
        self._native.weights_are_final()

    def freeze(self) -> None:
        """Compares the registrations of all ranks now instead of at the first step. Collective."""
        self._native.freeze()

    def step(self) -> None:
        """Ends an iteration, after the optimizer. Collective where something is due.

        Raises Stopped, on all ranks alike, when the config asked to end the run at what was found.
        """
        self._native.step()

    def save_state(self, directory: Union[str, os.PathLike]) -> None:
        """What must survive a restart, of this rank, as files in an existing directory; between two steps."""
        self._native.save_state(os.fspath(directory))

    def load_state(self, directory: Union[str, os.PathLike]) -> None:
        """Takes up what save_state() wrote: after the layers are registered, before the first step."""
        self._native.load_state(os.fspath(directory))

    def close(self) -> None:
        """Flushes the logs and marks the run as closed. Does not talk to other ranks. A second time it does nothing."""
        self._native.close()

    @property
    def iteration(self) -> int:
        """The one that runs, from first_iteration on."""
        return self._native.iteration

    @property
    def enabled(self) -> bool:
        """Whether a config is in force and the session has not detached."""
        return self._native.enabled

    @property
    def write_failure(self) -> Optional[str]:
        """What could not be written to a log, or None. Observing goes on."""
        return self._native.write_failure

    @property
    def tp_ranks(self) -> list[int]:
        """Ranks in the job of this rank's tensor-parallel group."""
        return self._native.tp_ranks


class Quantized:
    """An operand of GEMMs in one or both directions; made by Layer.quantize(), Quantizer.quantize() and others.

    rowwise stands for the matrix [rows, cols] and is used by fprop (activation, weight) and dgrad (gradient); columnwise for its
    transpose, used by wgrad (activation, gradient) and dgrad (weight).
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def shape(self) -> tuple[int, ...]:
        return self._native.shape

    @property
    def rowwise(self) -> bool:
        """Whether the direction is there."""
        return self._native.rowwise

    @property
    def columnwise(self) -> bool:
        """Whether the direction is there."""
        return self._native.columnwise

    def format(self, direction: str = "rowwise") -> str:
        """ "E4M3", "E4M3+E8M0 scales", "high precision"."""
        return self._native.format(direction)

    def operand(self, direction: str = "rowwise") -> Operand:
        """What a GEMM multiplies: arrays that point into this object and keep it alive."""
        return self._native.operand(direction)

    @property
    def codes(self) -> Array:
        """operand("rowwise").data."""
        return self.operand().data

    @property
    def scale_inv(self) -> float:
        """operand("rowwise").scale_inv: values are codes times this."""
        return self.operand().scale_inv

    @property
    def block_scales(self) -> Optional[Array]:
        """operand("rowwise").block_scales, or None."""
        return self.operand().block_scales

    def values(self, direction: str = "rowwise", dtype: str = "f32") -> Array:
        """What the codes of a direction stand for, in the shape of the tensor, whatever the direction. A copy."""
        return self._native.values(direction, dtype)

    def keep(self, *, rowwise: bool = False, columnwise: bool = False) -> None:
        """Frees the other directions; makes a wanted one from the other where the format allows.

        Raises UsageError when it does not, and while arrays of operand() are alive.
        """
        self._native.keep(rowwise, columnwise)


class Layer:
    """A GEMM layer. A program with kernels of its own asks `active` first, and calls the rest when it is true."""

    def __init__(self, native: Any, name: str) -> None:
        self._native = native
        self._weight: Any = None  # an operand in high precision points to it
        self.name = name

    @property
    def active(self) -> bool:
        """Whether anything may differ from the plain path in this layer at this iteration: one comparison."""
        return self._native.active

    @property
    def due(self) -> bool:
        """Whether anything does differ in this iteration, of all six tensors: exact where `active` says that it may."""
        return self._native.due

    def set_weight(self, weight: Tensor) -> None:
        """Where the weight is and stays, for Session.weights_are_final()."""
        self._native.set_weight(view_of(weight, "weight"))

    def quantize(
        self,
        tensor: str,
        x: Tensor,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        phase: Optional[str] = None,
        microbatch: int = 0,
    ) -> Quantized:
        """An operand ("activation", "weight" or "gradient"), as the config or else the recipe wants it.

        Every rank of tp calls it for a tensor whose scale they share, ranks with no row too. A weight is quantized in the
        first micro-batch of a step; reuse() says so of the others. phase: "forward" ("backward" of a gradient), "recompute",
        "evaluation".
        """
        return Quantized(
            self._native.quantize(tensor, view_of(x, tensor), rowwise, columnwise, _phase(phase, tensor), microbatch)
        )

    def reuse(
        self, tensor: str, x: Tensor, quantized: Quantized, *, phase: Optional[str] = None, microbatch: int = 0
    ) -> None:
        """Says that an operand of an earlier call is used again: a weight in later micro-batches, or in backward."""
        self._native.reuse(tensor, view_of(x, tensor), quantized._native, _phase(phase, tensor), microbatch)

    def gathers(self, tensor: str) -> bool:
        """Whether this operand's codes are gathered over tp under one scale: sequence parallelism."""
        return self._native.gathers(tensor)

    def gather(
        self, tensor: str, shard: Quantized, *, rowwise: bool = True, columnwise: bool = True
    ) -> Quantized:
        """The operand of the rows of all ranks of tp, in rank order; codes travel as they are. Collective over tp."""
        return Quantized(self._native.gather(tensor, shard._native, rowwise, columnwise))

    def wants_result(self, tensor: str) -> bool:
        """Whether the config wants to see or change this result ("output", "dgrad", "wgrad") in this iteration.

        A program that accumulates into a running sum then multiplies into a scratch first: what counts is the product of one
        micro-batch.
        """
        return self._native.wants_result(tensor)

    def result(
        self,
        tensor: str,
        io: Tensor,
        *,
        a: Optional[Quantized] = None,
        b: Optional[Quantized] = None,
        original_a: Optional[Tensor] = None,
        original_b: Optional[Tensor] = None,
        phase: Optional[str] = None,
        microbatch: int = 0,
    ) -> None:
        """The result of a GEMM, before any sum over ranks and before a bias. io is changed where the config says so.

        a, b: its operands, and what they were made of, for features that repeat the GEMM in high precision.
        """
        self._native.result(
            tensor,
            view_of(io, tensor),
            None if a is None else a._native,
            None if b is None else b._native,
            None if original_a is None else view_of(original_a, "original_a"),
            None if original_b is None else view_of(original_b, "original_b"),
            _phase(phase, tensor),
            microbatch,
        )

    def inspect(
        self, tensor: str, x: Tensor, *, phase: Optional[str] = None, microbatch: int = 0
    ) -> None:
        """Shows one of the six tensors to the config and gives nothing back: for a program whose own kernels stay in charge.

        An operand is quantized as the config or the recipe wants it, measured and dropped; of a result a copy is shown.
        """
        if tensor in ("activation", "weight", "gradient"):
            self.quantize(tensor, x, phase=phase, microbatch=microbatch)
        elif self.wants_result(tensor):
            from .tensors import contiguous

            self.result(tensor, contiguous(x, tensor), phase=phase, microbatch=microbatch)

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        out: Optional[Tensor] = None,
        phase: str = "forward",
        microbatch: int = 0,
        save: bool = True,
    ) -> tuple[Tensor, Any]:
        """out = x weight^T, quantized, multiplied and shown to the config; returns out and what backward() needs (or None).

        out None: a new Array of f32. x and weight stay as they are until backward. The weight is quantized in
        micro-batch 0 and kept for the others. What is gathered, summed over ranks or added as a bias stays the program's.
        """
        own_x, own_weight = view_of(x, "x"), view_of(weight, "weight")
        if out is None:
            out = Array.zeros([own_x.rows, own_weight.rows])
        saved = self._native.forward(own_x, own_weight, view_of(out, "out"), phase, microbatch, save)
        self._weight = own_weight.owner
        return out, saved

    def backward(
        self,
        dy: Tensor,
        saved: Any,
        *,
        dx: Union[Tensor, bool] = True,
        dweight: Tensor,
        beta: float = 0.0,
        phase: str = "backward",
        microbatch: int = 0,
    ) -> Optional[Tensor]:
        """dx = dy weight and dweight = dy^T x + beta dweight, of which the config sees and changes dy^T x; returns dx.

        dx: a tensor to write to, True for a new Array of f32, False when it is not wanted. beta is not 0: dweight is f32.
        """
        gradient, sum_of_weight = view_of(dy, "dy"), view_of(dweight, "dweight")
        out: Optional[Tensor] = None
        if dx is True:
            out = Array.zeros([gradient.rows, sum_of_weight.cols])
        elif dx is not False:
            out = dx
        wanted = None if out is None else view_of(out, "dx")
        self._native.backward(gradient, saved, wanted, sum_of_weight, beta, phase, microbatch)
        return out


class Quantizer:
    """A recipe's quantizer of one operand, without a session. recipe and tensor as in Session.layer() and Layer.quantize().

    format: "e4m3" or "e5m2" instead of the recipe's. history: steps that delayed scaling looks back; step() ends one.
    """

    def __init__(
        self,
        recipe: str,
        tensor: str = "activation",
        *,
        format: Optional[str] = None,
        name: str = "",
        history: int = 1024,
    ) -> None:
        self._native = _native.Quantizer(recipe, tensor, format, name, history)

    def quantize(self, x: Tensor, *, rowwise: bool = True, columnwise: bool = False) -> Quantized:
        return Quantized(self._native.quantize(view_of(x, "x"), rowwise, columnwise))

    def step(self) -> None:
        """Delayed scaling: new scales from the amaxes of the steps before. The others do nothing."""
        self._native.step()


def multiply(
    gemm: str, a: Quantized, b: Quantized, *, out: Optional[Tensor] = None, beta: float = 0.0
) -> Tensor:
    """out = a b^T as the layer's GEMM has it, + beta out: "fprop" of activation and weight, "dgrad" of gradient and weight,
    "wgrad" of gradient and activation. Sums are of f32; out None: a new Array of f32; f16 and bf16 go with beta 0."""
    if out is None:
        if beta != 0.0:
            raise UsageError(f"beta is {beta} and there is no out to add to")
        rows_of = {"fprop": (0, 0), "dgrad": (0, 1), "wgrad": (1, 1)}
        first, second = rows_of.get(gemm, (0, 0))
        out = Array.zeros([_extents(a)[first], _extents(b)[second]])
    _native.multiply(gemm, a._native, b._native, beta, view_of(out, "out"))
    return out


def _extents(quantized: Quantized) -> tuple[int, int]:
    shape: Sequence[int] = quantized.shape
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return rows, shape[-1] if shape else 1


def _phase(phase: Optional[str], tensor: str) -> str:
    if phase is not None:
        return phase
    return "backward" if tensor in ("gradient", "dgrad", "wgrad") else "forward"


__all__ = ["Layer", "Preset", "Quantized", "Quantizer", "Session", "multiply", "presets"]
