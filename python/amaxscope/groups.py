"""Groups of ranks: whose collectives a session talks through. It splits what it is given, so its traffic is its own.

A group is made of an mpi4py communicator, of a process group of torch.distributed, or of an object with a few methods.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn, Optional, Protocol, Sequence

from . import _native


class Request(Protocol):
    """An all_reduce that was started."""

    def test(self) -> bool:
        """Whether it is done; never waits."""


class Collectives(Protocol):
    """What a program's own group has, on each rank. Buffers are memoryviews over host memory, writable where they are written
    to, valid during the call only. A method blocks until it is done, on the thread that uses the session, and raises when it
    fails; the session's call then ends with an InternalError whose cause that is, or goes on without observing."""

    rank: int
    size: int
    world_ranks: Sequence[int]
    """Optional: the rank in the job of each of them; without it 0 .. size - 1."""

    def all_reduce(self, buffer: memoryview, dtype: str, op: str) -> None:
        """buffer = op ("sum", "min", "max") over the ranks; elements are f64, f32, u32, i32, u64 or i64."""

    def all_gather(self, part: memoryview, whole: memoryview) -> None:
        """whole = the ranks' parts, one after the other. Bytes."""

    def broadcast(self, buffer: memoryview, root: int) -> None:
        """buffer = root's. Bytes."""

    def barrier(self) -> None: ...

    def split(self, color: int, key: int) -> Optional[Collectives]:
        """The group of the ranks with the same color, ordered by key, then by rank here; None for a negative color. Every rank
        of this group calls it."""

    def abort(self, status: int, reason: str) -> NoReturn:
        """Ends the whole job with this status."""

    # Optional: start_all_reduce(buffer, dtype, op) -> Request. With it a rank that never comes is reported at the session's
    # deadline; without it, it is waited for as long as all_reduce waits. The buffer is valid until the request is done.


class Group:
    """Ranks that do something together."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @classmethod
    def from_callbacks(cls, collectives: Collectives) -> Group:
        """Of an object with the methods of Collectives."""
        return cls(_native.Group(collectives))

    @classmethod
    def from_mpi4py(cls, comm: Any) -> Group:
        """Of a duplicate of an mpi4py communicator, which is never used itself. Collective over comm."""
        return cls.from_callbacks(MpiCollectives(comm.Dup()))

    @classmethod
    def from_torch(cls, group: Any = None) -> Group:
        """Of a process group of torch.distributed (None: the default one), gloo or nccl. The session's own groups are made by
        new_group(). Collective over group."""
        from .torch_groups import TorchCollectives

        return cls.from_callbacks(TorchCollectives(group))

    @property
    def rank(self) -> int:
        return self._native.rank

    @property
    def size(self) -> int:
        return self._native.size

    @property
    def world_ranks(self) -> list[int]:
        """The rank in the job of each of them."""
        return self._native.world_ranks

    def split(self, color: int, key: int = 0) -> Optional[Group]:
        """The group of the ranks with the same color, ordered by key; None for a negative color. Collective."""
        part = self._native.split(color, key)
        return None if part is None else Group(part)

    @property
    def calls(self) -> dict[str, int]:
        """Collectives of this rank so far, of this group and all that were split from it, by whose they were: "debug" the
        session's, "recipe" those of recipes (shared scales), "trainer" others."""
        return self._native.calls()


def end_job(status: int, reason: str) -> NoReturn:
    """For abort() where there is nothing better: says why and ends this process; the launcher ends the others."""
    print(reason, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


class MpiCollectives:
    """Over an mpi4py communicator, which is taken over."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm = comm
        self._pending = 0
        self._finalized = MPI.Is_finalized  # at the interpreter's end modules may be gone
        self._types = {"f64": MPI.DOUBLE, "f32": MPI.FLOAT, "u32": MPI.UINT32_T, "i32": MPI.INT32_T,
                       "u64": MPI.UINT64_T, "i64": MPI.INT64_T}  # fmt: skip
        self._ops = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}
        self._bytes, self._in_place, self._undefined, self._null = MPI.BYTE, MPI.IN_PLACE, MPI.UNDEFINED, MPI.COMM_NULL
        self._world = MPI.COMM_WORLD
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        members, everybody = comm.Get_group(), MPI.COMM_WORLD.Get_group()
        self.world_ranks = list(MPI.Group.Translate_ranks(members, list(range(self.size)), everybody))
        members.Free()
        everybody.Free()

    def all_reduce(self, buffer: memoryview, dtype: str, op: str) -> None:
        self._comm.Allreduce(self._in_place, [buffer, self._types[dtype]], self._ops[op])

    def start_all_reduce(self, buffer: memoryview, dtype: str, op: str) -> Request:
        request = self._comm.Iallreduce(self._in_place, [buffer, self._types[dtype]], self._ops[op])
        self._pending += 1
        return _MpiRequest(self, request, buffer)

    def all_gather(self, part: memoryview, whole: memoryview) -> None:
        self._comm.Allgather([part, self._bytes], [whole, self._bytes])

    def broadcast(self, buffer: memoryview, root: int) -> None:
        limit = 1 << 30  # counts are ints
        for first in range(0, len(buffer), limit):
            with buffer[first : first + limit] as piece:
                self._comm.Bcast([piece, self._bytes], root)

    def barrier(self) -> None:
        self._comm.Barrier()

    def split(self, color: int, key: int) -> Optional[MpiCollectives]:
        part = self._comm.Split(self._undefined if color < 0 else color, key)
        return None if part == self._null else MpiCollectives(part)

    def abort(self, status: int, reason: str) -> NoReturn:
        print(reason, file=sys.stderr, flush=True)
        self._world.Abort(status)
        end_job(status, reason)

    def __del__(self) -> None:
        # With a request that never completed the communicator is left as it is: freeing it would wait.
        if getattr(self, "_pending", 1) == 0 and not self._finalized() and self._comm != self._null:
            self._comm.Free()


class _MpiRequest:
    def __init__(self, group: MpiCollectives, request: Any, buffer: memoryview) -> None:
        self._group, self._request, self._buffer = group, request, buffer

    def test(self) -> bool:
        done = self._request.Test()
        if done:
            self._group._pending -= 1
        return done
