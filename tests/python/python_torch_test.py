"""Sessions over process groups of torch.distributed (gloo), in processes started as torchrun starts them. MPI is nowhere."""

import os
import sys
import tempfile
import unittest

import amaxscope
import torch
import torch.distributed as dist
from amaxscope.torch_groups import TorchCollectives
from support import STATISTICS, records

dist.init_process_group("gloo")
RANK, RANKS = dist.get_rank(), dist.get_world_size()
CONFIG = STATISTICS.replace("stats: [cur_amax]\n      freq: 2", "stats: [cur_amax, l1_norm]\n      freq: 2")
TP = 2 if RANKS > 1 else 1


class Collectives(unittest.TestCase):
    def reduced(self, dtype, op, value):
        group = TorchCollectives()
        letter = {"f64": "d", "f32": "f", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}[dtype]
        buffer = memoryview(bytearray(8 * 2)).cast(letter)
        buffer[0] = value
        group.all_reduce(buffer, dtype, op)
        return buffer[0]

    def test_unsigned_numbers_keep_their_order(self):
        top = (1 << 64) - 1 - RANK  # negative ones, were they signed
        self.assertEqual(self.reduced("u64", "max", top if RANK == 0 else 5), (1 << 64) - 1)
        self.assertEqual(self.reduced("u64", "min", top), (1 << 64) - RANKS)
        self.assertEqual(self.reduced("u32", "max", 0x80000000 + RANK), 0x80000000 + RANKS - 1)
        self.assertEqual(self.reduced("u64", "sum", 1 << 63) , (RANKS << 63) & ((1 << 64) - 1))
        self.assertEqual(self.reduced("i32", "min", -3 - RANK), -2 - RANKS)
        self.assertEqual(self.reduced("f64", "sum", 0.5), 0.5 * RANKS)

    def test_split_has_the_order_of_keys_in_all_of_its_collectives(self):
        part = TorchCollectives().split(0, -RANK)
        self.assertEqual((part.rank, part.world_ranks), (RANKS - 1 - RANK, list(reversed(range(RANKS)))))
        whole = bytearray(RANKS)
        part.all_gather(memoryview(bytes([RANK])), memoryview(whole))
        self.assertEqual(list(whole), list(reversed(range(RANKS))))
        root = bytearray([RANK])
        part.broadcast(memoryview(root), 0)
        self.assertEqual(root[0], RANKS - 1)
        again = part.split(RANK % 2, 0)
        self.assertEqual(again.world_ranks, [rank for rank in reversed(range(RANKS)) if rank % 2 == RANK % 2])
        self.assertIsNone(TorchCollectives().split(-1, 0))


class Sessions(unittest.TestCase):
    def test_records_are_of_all_ranks(self):
        folder = [tempfile.mkdtemp() if RANK == 0 else None]
        dist.broadcast_object_list(folder, src=0)
        world = amaxscope.Group.from_torch()
        with amaxscope.Session(config_text=CONFIG, log_dir=folder[0], world=world, tp_size=TP) as session:
            self.assertEqual(session.tp_ranks, list(range(RANK // TP * TP, RANK // TP * TP + TP)))
            layer = session.layer("fc1", parallel="row", dtype="bf16")
            for step in range(3):
                layer.inspect("activation", torch.tensor([[1.0 + RANK + step, -0.25]], dtype=torch.bfloat16))
                session.step()
        dist.barrier()
        found = records(folder[0])
        self.assertEqual([record["iteration"] for record in found], [0, 2])
        for record in found:
            values = [1.0 + rank + record["iteration"] for rank in range(RANKS)]
            self.assertEqual(record["stats"], {"cur_amax": max(values), "l1_norm": sum(values) + 0.25 * RANKS})
        dist.barrier()

    def test_mpi_is_not_loaded(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            self.assertNotIn("libmpi", maps.read())
        self.assertNotIn("mpi4py", sys.modules)
        self.assertEqual(os.environ["WORLD_SIZE"], str(RANKS))
