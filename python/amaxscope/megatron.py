"""Megatron's ColumnParallelLinear and RowParallelLinear with amaxscope in their two passes. Imports torch.

    from amaxscope.megatron import watch
    with amaxscope.Session("debug.yaml", log_dir="logs", world=amaxscope.Group.from_torch(), tp_size=4) as session:
        for name, module in model.named_modules():
            if isinstance(module, (ColumnParallelLinear, RowParallelLinear)):
                watch(session, module, name, tp_group=tp_group)
        ...
            session.step()  # after the optimizer

Without a recipe a layer's own forward runs wherever amaxscope has nothing to do in it. Otherwise, and with a recipe
always, amaxscope quantizes and multiplies, in host memory: tensors on a device are copied there and back, so choose `freq` with
care. What is gathered and reduced over tp is as in Megatron.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

from .errors import UsageError
from .session import Session
from .tensor_parallel import Arrays, Passes


def watch(
    session: Session,
    module: Any,
    name: str,
    *,
    number: Optional[int] = None,
    parallel: Optional[str] = None,
    sequence_parallel: Optional[bool] = None,
    tp_group: Any = None,
    recipe: str = "none",
    expert: Optional[int] = None,
) -> WatchedLinear:
    """Registers a linear layer and puts amaxscope into its forward and backward. Before the first step.

    module    has weight [outputs, inputs of this rank], maybe bias and skip_bias_add, and a forward(x) that returns
              (output, bias) as Megatron's do.
    number    of the transformer layer, from 1; None: module.layer_number if it is there.
    parallel  "column", "row" or "none"; None: by the module's gather_output or input_is_parallel.
    sequence_parallel  None: the module's.
    tp_group  torch's, of the ranks of session.tp_ranks; None: not tensor parallel.
    """
    if parallel is None:
        if hasattr(module, "gather_output"):
            parallel = "column"
        elif hasattr(module, "input_is_parallel"):
            parallel = "row"
        else:
            raise UsageError(
                f"layer {name}: {type(module).__name__} has neither gather_output nor input_is_parallel: "
                'say parallel="column", "row" or "none"'
            )
    if getattr(module, "gather_output", False) or not getattr(module, "input_is_parallel", True):
        raise UsageError(
            f"layer {name}: gather_output=True and input_is_parallel=False move tensors that amaxscope does not see; "
            "such a layer cannot be watched"
        )
    if sequence_parallel is None:
        sequence_parallel = bool(getattr(module, "sequence_parallel", False))
    if number is None:
        number = getattr(module, "layer_number", None)
    ranks = [session.tp_ranks[0]] if tp_group is None else dist.get_process_group_ranks(tp_group)
    if tp_group is not None and ranks != session.tp_ranks:
        raise UsageError(
            f"layer {name}: tp_group has the ranks {ranks}, the session's tensor-parallel group {session.tp_ranks}: open the "
            "session with Megatron's sizes"
        )
    layer = session.layer(
        name,
        number,
        parallel=parallel,
        sequence_parallel=sequence_parallel,
        expert=expert,
        recipe=recipe,
        dtype={torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[module.weight.dtype],
    )
    passes = Passes(layer, parallel, sequence_parallel and len(ranks) > 1, _arrays(tp_group))
    return WatchedLinear(session, layer, module, passes, always=recipe != "none")


class WatchedLinear:
    """A layer that is watched; module.forward goes through it. stop() gives the module its own back."""

    def __init__(self, session: Session, layer: Any, module: Any, passes: Passes, *, always: bool) -> None:
        self._session, self.layer, self.module, self.passes, self._always = session, layer, module, passes, always
        self._own_forward = module.forward
        self._iteration = -1
        self._microbatch = -1
        module.forward = self._forward

    def stop(self) -> None:
        self.module.forward = self._own_forward

    def _forward(self, x: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        phase = self._begin()
        if not (self._always or self.layer.due):
            return self._own_forward(x, *arguments, **named)
        if any(argument is not None for argument in arguments) or any(value is not None for value in named.values()):
            raise UsageError(f"layer {self.layer.name}: its forward got more than x, which amaxscope cannot pass on")
        y = _Linear.apply(x, self.module.weight, self, phase, self._microbatch)
        bias = getattr(self.module, "bias", None)
        if getattr(self.module, "skip_bias_add", False):
            return y, bias
        return (y if bias is None else y + bias), None

    def _begin(self) -> str:
        """Counts the micro-batches of a step: the forwards of training that are not run again for backward."""
        if not self.module.training:
            self._microbatch = max(self._microbatch, 0)
            return "evaluation"
        if torch._C._current_graph_task_id() != -1:  # inside a backward: activation recompute
            return "recompute"
        if self._session.iteration != self._iteration:
            self._iteration, self._microbatch = self._session.iteration, 0
        else:
            self._microbatch += 1
        return "forward"


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, watched: WatchedLinear, phase: str, microbatch: int) -> Any:
        rows = _on_host(x.detach()).reshape(-1, x.shape[-1])
        save = phase != "evaluation"
        y, ctx.saved = watched.passes.forward(
            rows, _on_host(weight.detach()), phase=phase, microbatch=microbatch, save=save
        )
        ctx.watched, ctx.microbatch, ctx.shape = watched, microbatch, x.shape
        ctx.save_for_backward(weight)
        return y.to(x.device).reshape(-1, *x.shape[1:-1], y.shape[-1])

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        dx, dweight = ctx.watched.passes.backward(
            _on_host(dy).reshape(-1, dy.shape[-1]),
            ctx.saved,
            microbatch=ctx.microbatch,
            want_dx=ctx.needs_input_grad[0],
            want_dweight=ctx.needs_input_grad[1],
        )
        ctx.saved = None
        if dx is not None:
            dx = dx.to(dy.device).reshape(ctx.shape)
        if dweight is not None:
            dweight = _gradient_of(weight, dweight.to(dy.device), ctx.watched.module)
        return dx, dweight, None, None, None


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("cpu").contiguous()


def _gradient_of(weight: torch.Tensor, dweight: torch.Tensor, module: Any) -> torch.Tensor:
    """What autograd gets. With Megatron's gradient_accumulation_fusion the sum is kept in weight.main_grad, and autograd gets a
    stand-in that Megatron's hooks know not to add."""
    if getattr(module, "gradient_accumulation_fusion", False) and hasattr(weight, "main_grad"):
        weight.main_grad.add_(dweight)
        if hasattr(weight, "grad_added_to_main_grad"):
            weight.grad_added_to_main_grad = True
        return torch.zeros_like(weight)
    return dweight.to(weight.dtype)


def _arrays(tp_group: Any) -> Arrays:
    size = 1 if tp_group is None else dist.get_world_size(tp_group)
    on_host = tp_group is None or "gloo" in dist.get_backend(tp_group)

    def all_reduce(summand: torch.Tensor) -> None:
        if size == 1:
            return
        if on_host:
            dist.all_reduce(summand, group=tp_group)
            return
        there = summand.to(torch.device("cuda", torch.cuda.current_device()))
        dist.all_reduce(there, group=tp_group)
        summand.copy_(there)

    def reduce_scatter(summand: torch.Tensor) -> torch.Tensor:
        rows = summand.shape[0] // size
        first = rows * dist.get_rank(tp_group) if size > 1 else 0
        all_reduce(summand)  # not every backend has a reduce_scatter
        return summand[first : first + rows].clone()

    return Arrays(
        empty=lambda rows, cols, like: torch.empty(rows, cols, dtype=like.dtype),
        empty_f32=lambda rows, cols: torch.empty(rows, cols, dtype=torch.float32),
        all_reduce=all_reduce,
        reduce_scatter=reduce_scatter,
    )
