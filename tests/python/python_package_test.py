"""What importing amaxscope brings with it."""

import os
import re
import subprocess
import sys
import unittest


class Package(unittest.TestCase):
    def test_importing_it_imports_neither_numpy_nor_torch_nor_mpi(self):
        script = (
            "import sys, amaxscope; amaxscope.version; "
            "print([m for m in ('numpy', 'torch', 'mpi4py', 'ml_dtypes') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[]")

    def test_the_compiled_part_has_the_version_of_the_sources(self):
        import amaxscope

        with open(os.path.join(os.environ["AMAXSCOPE_SOURCE_DIR"], "core/version.hpp"), encoding="utf-8") as header:
            expected = re.search(r'kVersion = "([0-9.]+)"', header.read()).group(1)
        self.assertEqual(amaxscope.version, expected)

    def test_a_name_that_is_not_there_is_an_error_that_lists_those_that_are(self):
        import amaxscope

        with self.assertRaisesRegex(AttributeError, "no 'sesion'; it has .*version"):
            amaxscope.sesion
