"""Collectives over a process group of torch.distributed. Imported when one is handed in."""

from __future__ import annotations

from typing import Any, NoReturn, Optional

import torch
import torch.distributed as dist

from .groups import end_job

# torch's backends reduce no unsigned integers: these travel as signed ones, with the sign bit turned where order matters.
_TYPES = {"f64": torch.float64, "f32": torch.float32, "u32": torch.int32, "i32": torch.int32, "u64": torch.int64,
          "i64": torch.int64}  # fmt: skip
_SIGN = {"u32": -(1 << 31), "u64": -(1 << 63)}
_OPS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class TorchCollectives:
    """Over a process group, whose ranks come in the order of `members` (ranks in the job); without it in its own order.

    gloo works on host memory. nccl needs a device: what travels is copied to this rank's current one and back. Other backends
    are treated like nccl where they have a device of torch's accelerator.
    """

    def __init__(self, group: Any = None, members: Optional[list[int]] = None) -> None:
        self._group = dist.group.WORLD if group is None else group
        own_order = dist.get_process_group_ranks(self._group)
        self.world_ranks = own_order if members is None else members
        self.size = len(self.world_ranks)
        self.rank = self.world_ranks.index(dist.get_rank())
        self._position = [own_order.index(rank) for rank in self.world_ranks]  # in the group, of our ranks
        backend = dist.get_backend(self._group)
        self._on_host = "gloo" in backend or "mpi" in backend or "cpu" in backend

    def _copy(self, buffer: memoryview, dtype: torch.dtype) -> torch.Tensor:
        """Where the backend works. It may hold a tensor for a moment after it is done, which a borrowed buffer does not allow."""
        device = "cpu" if self._on_host else torch.device("cuda", torch.cuda.current_device())
        return torch.frombuffer(bytearray(buffer), dtype=dtype).to(device) if len(buffer) else torch.empty(0, dtype=dtype)

    def start_all_reduce(self, buffer: memoryview, dtype: str, op: str) -> _TorchRequest:
        there = self._copy(buffer, _TYPES[dtype])
        sign = _SIGN.get(dtype) if op != "sum" else None
        if sign is not None:
            there.bitwise_xor_(sign)
        work = dist.all_reduce(there, _OPS[op], group=self._group, async_op=True) if len(there) else None
        return _TorchRequest(buffer, there, work, sign)

    def all_reduce(self, buffer: memoryview, dtype: str, op: str) -> None:
        self.start_all_reduce(buffer, dtype, op).finish()

    def all_gather(self, part: memoryview, whole: memoryview) -> None:
        if len(part) == 0:
            return
        own = self._copy(part, torch.uint8)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own, group=self._group)
        result = torch.frombuffer(whole, dtype=torch.uint8).view(self.size, -1)
        for rank, position in enumerate(self._position):
            result[rank].copy_(parts[position])

    def broadcast(self, buffer: memoryview, root: int) -> None:
        if len(buffer) == 0:
            return
        there = self._copy(buffer, torch.uint8)
        dist.broadcast(there, src=self.world_ranks[root], group=self._group)
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(there)

    def barrier(self) -> None:
        self.all_reduce(memoryview(bytearray(4)).cast("i"), "i32", "sum")

    def split(self, color: int, key: int) -> Optional[TorchCollectives]:
        chosen = [None] * self.size
        dist.all_gather_object(chosen, (color, key), group=self._group)
        if color < 0:
            return None
        # all_gather_object answers in the group's own order.
        asked = [(chosen[position][1], rank) for rank, position in enumerate(self._position) if chosen[position][0] == color]
        members = [self.world_ranks[rank] for _, rank in sorted(asked)]
        # Only the members of a group make it: ranks of another color make theirs, and others know of neither.
        group = dist.new_group(sorted(members), backend=dist.get_backend(self._group), use_local_synchronization=True)
        return TorchCollectives(group, members)

    def abort(self, status: int, reason: str) -> NoReturn:
        end_job(status, reason)


class _TorchRequest:
    def __init__(self, buffer: memoryview, there: torch.Tensor, work: Any, sign: Optional[int]) -> None:
        self._buffer, self._there, self._work, self._sign = buffer, there, work, sign

    def test(self) -> bool:
        if self._work is not None and not self._work.is_completed():
            return False
        self.finish()
        return True

    def finish(self) -> None:
        if self._work is None:
            return
        self._work.wait()
        result = self._there if self._sign is None else self._there.bitwise_xor(self._sign)
        torch.frombuffer(self._buffer, dtype=result.dtype).copy_(result)
