"""Readers on what `amaxscope train` writes, and docs/python_data.md on the same."""

import contextlib
import io
import os
import re
import subprocess
import tempfile
import unittest

import amaxscope

SOURCES = os.environ["AMAXSCOPE_SOURCE_DIR"]
PROGRAM = os.path.join(os.environ["AMAXSCOPE_BINARY_DIR"], "launch", "amaxscope")
CONFIG = """
all:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation, weight], stats: [cur_amax, std]}
    LogFp8TensorStats: {enabled: true, tensors: [activation], stats: [underflows%, mse, mxfp8_mse_columnwise]}
"""


@unittest.skipUnless(os.path.exists(PROGRAM), "the program amaxscope is not built")
class RealRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        with open(os.path.join(folder.name, "c.yaml"), "w", encoding="utf-8") as config:
            config.write(CONFIG)
        with open(os.path.join(folder.name, "text"), "w", encoding="utf-8") as text:
            text.write("a text to learn from, of a few words. " * 100)
        command = f"{PROGRAM} train --data text --config c.yaml --recipe current --steps 3 --layers 1 --hidden 32"
        subprocess.run(
            [*command.split(), "--heads", "2", "--seq", "16", "--batch", "2", "--log-dir", "log"],
            cwd=folder.name, check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    def setUp(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def test_names_and_values_are_those_of_the_text_log(self):
        expected = {}
        with open("log/nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-0.log", encoding="utf-8") as log:
            for line in log:
                name, iteration, value = re.search(r"INFO - (\S+)\s+iteration=(\d+)\s+value=(\S+)", line).groups()
                expected[name, int(iteration)] = value
        self.assertGreater(len(expected), 50)
        got = {}

        def log(iteration, values):
            got.update({(name, iteration): f"{value:.9g}" for name, value in values.items()})

        amaxscope.forward("log", log, scalars=False)
        self.assertEqual(got, expected)

    def test_nothing_is_amiss_and_the_loss_is_there(self):
        run = amaxscope.read("log")
        self.assertEqual(run.problems, [])
        self.assertEqual(run.runs[0]["state"], "closed")
        self.assertEqual([at for at, name, _ in run.scalars if name == "loss"], [0, 1, 2])
        self.assertEqual(set(run["direction"]), {"", "rowwise", "columnwise"})

    def test_what_the_page_says(self):
        with open(os.path.join(SOURCES, "docs/python_data.md"), encoding="utf-8") as page:
            blocks = re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            for block in blocks:
                exec(compile(block, "docs/python_data.md", "exec"), names)
        self.assertGreaterEqual(len(blocks), 4)
        self.assertEqual(list(names["iterations"]), [0, 1, 2])
        self.assertEqual(set(names["late"]["iteration"]), {2})
        self.assertEqual(names["largest"], max(names["values"].tolist() + [names["largest"]]))
        self.assertIn("decoder.layers.1.mlp.linear_fc1_activation_cur_amax", printed.getvalue())
