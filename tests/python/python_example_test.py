"""The example that docs/python.md begins with."""

import os
import pathlib
import subprocess
import sys
import unittest

from support import TemporaryFolder, records

SOURCES = pathlib.Path(os.environ["AMAXSCOPE_SOURCE_DIR"])


class Example(unittest.TestCase):
    def test_it_runs_and_records_what_it_says(self):
        with TemporaryFolder() as folder:
            program = [sys.executable, str(SOURCES / "examples/python/one_layer.py"), str(folder)]
            done = subprocess.run(program, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = records(folder)
            self.assertEqual(sorted({record["iteration"] for record in found}), [0, 5])
            self.assertEqual({record["tensor"] for record in found}, {"activation", "weight", "gradient"})
            for record in found:
                (name,) = record["stats"]
                self.assertIn("underflows%", name)
                self.assertGreaterEqual(record["stats"][name], 0)
