"""The same on several ranks, over process groups of torch.distributed (gloo): tp is 2; with four ranks so is dp."""

import os
import tempfile
import unittest

import numpy as np
import nvdlfw_inspect.api as debug_api
import torch
import torch.distributed as dist
from dlfw_support import begin
from fp8_arithmetic import E4M3, scale_of, through_one_scale

import amaxscope

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TP = RANK % 2


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo")
        cls.addClassCleanup(dist.destroy_process_group)
        groups = [dist.new_group([first, first + 1]) for first in range(0, RANKS, 2)]
        cls.tp_group = groups[RANK // 2]

    def setUp(self):
        name = [tempfile.mkdtemp() if RANK == 0 else None]
        dist.broadcast_object_list(name)
        self.folder = name[0]
        torch.manual_seed(11)  # the same whole tensors everywhere
        self.weight = torch.randn(64, 96)
        self.weight[5, 5] = 30.0  # the largest is in the half of rank 0
        self.tokens = [torch.randn(16, 96) + dp for dp in range(RANKS // 2)]

    def begin(self, **features):
        lines = begin(self, self.folder, **features)
        debug_api.set_tensor_reduction_group(dist.group.WORLD)
        return lines

    def column_parallel(self, name="fc1"):
        from te_layer import Linear

        return Linear(name, self.weight[32 * TP : 32 * (TP + 1)].contiguous(), tp_group=self.tp_group, tp_size=2)

    def run_layer(self, layer):
        layer.forward_backward(self.tokens[RANK // 2], torch.randn(16, layer.weight.shape[0]))

    def test_statistics_are_those_of_the_whole(self):
        stats = ["cur_amax", "mean", "std", "numel"]
        lines = self.begin(LogTensorStats={"tensors": ["weight", "activation"], "stats": stats})
        self.run_layer(self.column_parallel())
        debug_api.step()
        whole = {"weight": self.weight.double().numpy(), "activation": torch.cat(self.tokens).double().numpy()}
        for name, x in whole.items():
            # as in the reference every replica of an activation counts
            replicas = 2 if name == "activation" else 1
            x = np.concatenate([x] * replicas)
            for stat, value in (("cur_amax", np.abs(x).max()), ("mean", x.mean()), ("std", x.std(ddof=1)), ("numel", x.size)):
                self.assertLess(abs(lines.values[f"fc1_{name}_{stat}", 0] - value), 1e-9 * abs(value), stat)

    def test_each_number_is_in_the_files_once(self):
        self.begin(LogTensorStats={"tensors": ["weight", "activation"], "stats": ["numel"]})
        for _ in range(2):
            self.run_layer(self.column_parallel())
            debug_api.step()
        debug_api.end_debug()
        dist.barrier()
        run = amaxscope.read(self.folder)
        rows = sorted(zip(run["iteration"], run["tensor"], run["group"], run["rank"]))
        everyone = ",".join(str(rank) for rank in range(RANKS))
        self.assertEqual(
            rows, [(at, tensor, group, 0) for at in (0, 1) for tensor, group in (("activation", everyone), ("weight", "0,1"))]
        )
        self.assertEqual(run.problems, [])

    def test_a_rank_that_does_not_run_a_layer_holds_nobody_up(self):
        lines = self.begin(LogTensorStats={"tensors": ["activation"], "stats": ["numel"], "freq": 2})
        first, second = self.column_parallel("fc1"), self.column_parallel("fc2")
        for iteration in range(5):
            if RANK == 0 or iteration == 4:
                self.run_layer(second)
            if RANK != 0 or iteration == 0:
                self.run_layer(first)
            debug_api.step()
        size = 16 * 96
        expected = {
            ("fc1", 0): RANKS,
            ("fc1", 2): RANKS - 1,
            ("fc1", 4): RANKS - 1,
            ("fc2", 0): 1,
            ("fc2", 2): 1,
            ("fc2", 4): RANKS,
        }
        ran = {key for key in expected if key[1] == 0 and (key[0] == "fc1" or RANK == 0)}
        ran |= {("fc2" if RANK == 0 else "fc1", 2)} | {("fc2", 4)} | ({("fc1", 4)} if RANK else set())
        found = {(name.split("_")[0], at): value for (name, at), value in lines.values.items()}
        self.assertEqual(found, {key: expected[key] * size for key in ran})

    def fake_quantized(self, **options):
        self.begin(
            FakeQuant={"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3", **options},
            LogTensorStats={"tensors": ["activation"], "stats": ["numel"]},
        )
        layer = self.column_parallel()
        self.run_layer(layer)
        debug_api.step()
        debug_api.end_debug()
        return layer.used["weight"][0].numpy()

    def expected(self, largest):
        own = self.weight[32 * TP : 32 * (TP + 1)].numpy()
        return through_one_scale(own, E4M3, scale_of(largest, E4M3))

    def header(self):
        dist.barrier()
        return amaxscope.read(self.folder).runs[-1]["options"]["scales_differing_between_tp_ranks"]

    def test_each_rank_has_its_own_scale_unless_asked_otherwise(self):
        own = self.weight[32 * TP : 32 * (TP + 1)].abs().max()
        np.testing.assert_array_equal(self.fake_quantized(), self.expected(own))
        self.assertEqual(self.header(), "1 of 1")

    def test_one_scale_for_the_tensor_when_asked(self):
        """The group comes from a hook that is told it: the first forward has run by then only where the activation is inspected
        before the weight is modified."""
        np.testing.assert_array_equal(self.fake_quantized(amax_scope="tensor"), self.expected(30.0))
        self.assertEqual(self.header(), "0 of 1")

    def test_one_scale_by_configure(self):
        self.begin(FakeQuant={"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3"})
        amaxscope.dlfw_inspect.configure(amax_scope="tensor", tp_group=self.tp_group)
        layer = self.column_parallel()
        self.run_layer(layer)
        debug_api.step()
        np.testing.assert_array_equal(layer.used["weight"][0].numpy(), self.expected(30.0))

    def test_a_group_that_is_not_known_is_an_error(self):
        self.begin(FakeQuant={"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3", "amax_scope": "tensor"})
        with self.assertRaisesRegex(RuntimeError, r"not\s+known: call amaxscope.dlfw_inspect.configure\(tp_group="):
            self.run_layer(self.column_parallel())

    def test_without_anything_due_nothing_is_exchanged(self):
        self.begin(LogTensorStats={"tensors": ["activation"], "stats": ["numel"], "freq": 5})
        layer, calls = self.column_parallel(), []
        original = dist.all_gather_object
        dist.all_gather_object = lambda *given, **more: (calls.append(1), original(*given, **more))[1]
        self.addCleanup(setattr, dist, "all_gather_object", original)
        for _ in range(11):
            self.run_layer(layer)
            debug_api.step()
        self.assertEqual(len(calls), 3 + 1)  # iterations 0, 5, 10, and once the name of the run
