"""The adapter for Megatron's layers under gloo, against the numbers of the C++ layers (linear_numbers.cpp) on the same tensors."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import amaxscope
import torch
import torch.distributed as dist
from amaxscope.megatron import watch
from support import records
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
RANK, RANKS = dist.get_rank(), dist.get_world_size()
NAME = "decoder.layers.1.mlp.linear_fc1"
CONFIG = """all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [cur_amax, l1_norm, mean]
      freq: 1
"""
# name, parallel, sequence parallel, recipe, type: as in linear_numbers.cpp
CASES = [
    ("column", "column", False, "current", torch.float32),
    ("row", "row", False, "current", torch.float32),
    ("column_sp", "column", True, "current", torch.float32),
    ("row_sp", "row", True, "current", torch.float32),
    ("column_bf16", "column", True, "none", torch.bfloat16),
    ("row_mxfp8", "row", False, "mxfp8", torch.float32),
]


class ColumnParallelLinear(torch.nn.Module):
    """The attributes that Megatron's has, and a forward that must not run where amaxscope is in charge."""

    def __init__(self, weight, sequence_parallel, bias=None):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.bias = None if bias is None else torch.nn.Parameter(bias)
        self.sequence_parallel, self.gather_output, self.skip_bias_add = sequence_parallel, False, False
        self.own_forwards = 0

    def forward(self, x):
        self.own_forwards += 1
        y = torch.nn.functional.linear(x, self.weight)
        return (y if self.bias is None else y + self.bias), None


class RowParallelLinear(ColumnParallelLinear):
    def __init__(self, weight, sequence_parallel, bias=None):
        super().__init__(weight, sequence_parallel, bias)
        del self.gather_output
        self.input_is_parallel = True


def read_npy(path):
    """An f32 matrix of NumPy's format, version 1."""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<H", content[8:10])
    header = eval(content[10 : 10 + length], {"__builtins__": {}})  # a literal that our own program wrote
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    return torch.frombuffer(bytearray(content[10 + length :]), dtype=torch.float32).reshape(header["shape"])


def shared_folder():
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    return pathlib.Path(folder[0])


def program():
    return os.path.join(os.environ["AMAXSCOPE_BINARY_DIR"], "tests/python/python_linear_numbers")


class AgainstTheLayersInCpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = shared_folder()
        status = [None]
        if RANK == 0:
            status[0] = subprocess.run([program(), str(cls.folder), str(RANKS)]).returncode
        dist.broadcast_object_list(status, src=0)
        if status[0] != 0:
            raise RuntimeError(f"{program()} ended with {status[0]}")

    def assert_as_in_cpp(self, found, name, case, summed):
        expected = read_npy(self.folder / case / f"rank_{RANK}" / f"{name}.npy")
        found = found.float()
        self.assertEqual(found.shape, expected.shape)
        if summed and RANKS > 2:
            # gloo adds up in another order than ranks: a few roundings of sums, in the type of the layer.
            rounding = 2.0**-9 if case.endswith("bf16") else 2.0**-24
            limit = 2 * RANKS * rounding * expected.abs().max().item()
            self.assertLessEqual((found - expected).abs().max().item(), limit, f"{case}: {name}")
        else:
            self.assertTrue(torch.equal(found, expected), f"{case}: {name}: {(found - expected).abs().max()}")

    def test_results_and_records(self):
        logs = shared_folder()
        for case, parallel, sequence_parallel, recipe, dtype in CASES:
            world = amaxscope.Group.from_torch()
            here = self.folder / case / f"rank_{RANK}"
            kind = ColumnParallelLinear if parallel == "column" else RowParallelLinear
            module = kind(read_npy(here / "weight.npy").to(dtype), sequence_parallel)
            with amaxscope.Session(config_text=CONFIG, log_dir=logs / case, world=world, tp_size=RANKS) as session:
                watch(session, module, NAME, number=1, tp_group=dist.group.WORLD, recipe=recipe)
                for step in range(2):
                    module.weight.grad = None
                    gradient = torch.zeros(module.weight.shape)
                    for microbatch in range(2):
                        suffix = f"_{step}_{microbatch}"
                        # [sequence, batch, hidden], as Megatron has it; x requires a gradient
                        x = read_npy(here / f"x{suffix}.npy").to(dtype).unsqueeze(1).requires_grad_()
                        y, _ = module(x)
                        self.assert_as_in_cpp(y.squeeze(1), f"y{suffix}", case, parallel == "row")
                        y.backward(read_npy(here / f"dy{suffix}.npy").to(dtype).unsqueeze(1))
                        self.assert_as_in_cpp(x.grad.squeeze(1), f"dx{suffix}", case, parallel == "column")
                        gradient += module.weight.grad.float()
                        module.weight.grad = None
                    if dtype == torch.float32:  # else autograd has rounded it
                        self.assert_as_in_cpp(gradient, f"dweight_{step}", case, False)
                    session.step()
            self.assertEqual(module.own_forwards, 0)
            dist.barrier()
            for rank in range(RANKS):
                self.assert_equal_records(records(logs / case, rank), records(self.folder / case, rank), case)
        dist.barrier()

    def assert_equal_records(self, found, expected, case):
        def key(record):
            return record["iteration"], record["layer"], record["tensor"], record["phase"], record["group"]

        self.assertEqual(sorted(map(key, found)), sorted(map(key, expected)), case)
        for own, other in zip(sorted(found, key=key), sorted(expected, key=key)):
            self.assertEqual(json.dumps(own, sort_keys=True), json.dumps(other, sort_keys=True), case)


class InATraining(unittest.TestCase):
    def test_where_nothing_is_due_the_layers_own_forward_runs(self):
        with amaxscope.Session(config_text=CONFIG.replace("freq: 1", "freq: 2")) as session:
            module = ColumnParallelLinear(torch.eye(4), False)
            watched = watch(session, module, NAME)
            for _ in range(4):
                x = torch.ones(2, 4, requires_grad=True)
                module(x)[0].sum().backward()
                self.assertTrue(torch.equal(x.grad, torch.ones(2, 4)))
                session.step()
            self.assertEqual(module.own_forwards, 2)  # of iterations 1 and 3
            watched.stop()
            before = module.own_forwards
            module(torch.ones(2, 4))
            self.assertEqual(module.own_forwards, before + 1)

    def test_a_bias_is_added_after_the_sum(self):
        world = amaxscope.Group.from_torch()
        with amaxscope.Session(config_text=CONFIG, world=world, tp_size=RANKS) as session:
            module = RowParallelLinear(torch.eye(4), False, bias=torch.full((4,), 10.0))
            watch(session, module, NAME, tp_group=dist.group.WORLD)
            y, no_bias = module(torch.ones(2, 4))
            self.assertIsNone(no_bias)
            self.assertTrue(torch.equal(y, torch.full((2, 4), RANKS + 10.0)))
            module.skip_bias_add = True
            y, bias = module(torch.ones(2, 4))
            self.assertTrue(torch.equal(y, torch.full((2, 4), float(RANKS))))
            self.assertIs(bias, module.bias)

    def test_recomputed_forwards_are_no_new_microbatches(self):
        folder = shared_folder() / f"rank{RANK}"
        phases = CONFIG.replace("[activation, weight, gradient, output, wgrad, dgrad]", "[activation]")
        with amaxscope.Session(config_text=phases, log_dir=folder) as session:
            module = ColumnParallelLinear(torch.eye(4), False)
            watch(session, module, NAME)
            x = torch.ones(2, 4, requires_grad=True)
            y = checkpoint(lambda t: module(t)[0], x, use_reentrant=False)
            y.sum().backward()
            self.assertTrue(torch.equal(x.grad, torch.ones(2, 4)))
            session.step()
        self.assertEqual(module.own_forwards, 0)
        self.assertEqual([record["stats"]["l1_norm"] for record in records(folder) if record["phase"] == "forward"], [8])

    def test_main_grad_is_added_to(self):
        with amaxscope.Session(config_text=CONFIG) as session:
            module = ColumnParallelLinear(torch.eye(4), False)
            watch(session, module, NAME)
            module.gradient_accumulation_fusion = True
            module.weight.main_grad = torch.ones(4, 4)
            module.weight.grad_added_to_main_grad = False
            module(torch.ones(2, 4, requires_grad=True))[0].sum().backward()
            self.assertTrue(torch.equal(module.weight.main_grad, torch.full((4, 4), 3.0)))
            self.assertTrue(module.weight.grad_added_to_main_grad)
            self.assertTrue(torch.equal(module.weight.grad, torch.zeros(4, 4)))

    def test_what_cannot_be_watched_says_why(self):
        with amaxscope.Session() as session:
            module = ColumnParallelLinear(torch.eye(4), False)
            module.gather_output = True
            with self.assertRaisesRegex(amaxscope.UsageError, "gather_output=True"):
                watch(session, module, NAME)
            with self.assertRaisesRegex(amaxscope.UsageError, "say parallel="):
                watch(session, torch.nn.Linear(2, 2), NAME)
            if RANKS > 1:
                with self.assertRaisesRegex(amaxscope.UsageError, r"tp_group has the ranks \[0, 1.*\[0\]"):
                    watch(session, ColumnParallelLinear(torch.eye(4), False), NAME, tp_group=dist.group.WORLD)
