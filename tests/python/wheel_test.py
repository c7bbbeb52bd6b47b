"""The wheel: built as pip builds it, installed in a new environment, used there without anything of the build.

Downloads scikit-build-core from PyPI once, into the build folder; SKIPPED where that cannot be had.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(os.environ["AMAXSCOPE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["AMAXSCOPE_BINARY_DIR"])
# What a Python of the system loads itself, or the system's C and C++ libraries.
OF_THE_SYSTEM = {"linux-vdso.so", "libstdc++.so", "libm.so", "libgcc_s.so", "libc.so", "libdl.so", "librt.so", "libpthread.so",
                 "ld-linux-x86-64.so", "ld-linux-aarch64.so"}  # fmt: skip


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def tools():
    """A pip with scikit-build-core, kept in the build folder."""
    folder = BUILD / "wheel_tools"
    if not (folder / "complete").exists():
        try:
            run(sys.executable, "-m", "venv", folder)
            run(folder / "bin/pip", "install", "--quiet", "--retries", "1", "scikit-build-core>=0.8")
        except AssertionError as error:
            raise unittest.SkipTest(f"no venv with scikit-build-core: {str(error)[-300:]}") from error
        (folder / "complete").touch()
    return folder / "bin/pip"


class Wheel(unittest.TestCase):
    def test_it_is_built_and_works_without_the_build_and_without_mpi(self):
        pip = tools()
        # The compiler and its flags are those of this build, and the folder is as deep: a compiler cache has everything.
        environment = dict(os.environ, CC=os.environ["AMAXSCOPE_CC"], CXX=os.environ["AMAXSCOPE_CXX"])
        settings = [f"--config-settings=cmake.define.AMAXSCOPE_WERROR={os.environ['AMAXSCOPE_WERROR']}",
                    f"--config-settings=cmake.build-type={os.environ['AMAXSCOPE_BUILD_TYPE']}",
                    f"--config-settings=build-dir={BUILD.parent / (BUILD.name + '-wheel')}"]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            run(pip, "wheel", SOURCES, "--no-build-isolation", "--no-deps", "-w", folder, *settings, env=environment)
            (wheel,) = folder.glob("amaxscope-*.whl")
            run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
            python = folder / "venv/bin/python"
            run(pip, "--python", python, "install", "--no-index", "--no-deps", wheel)

            own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
            where = run(python, "-c", "import amaxscope._native as n; print(n.__file__)", env=own, cwd=folder).strip()
            self.assertTrue(where.startswith(str(folder)), where)
            libraries = [line.split() for line in run("ldd", where, env=own).splitlines()]
            for words in libraries:
                name = pathlib.Path(words[0]).name
                is_of_system = name[: name.find(".so") + 3] in OF_THE_SYSTEM
                self.assertTrue(is_of_system or "/amaxscope.libs/" in words[2], f"{words} comes from outside")
            self.assertFalse([words for words in libraries if "mpi" in words[0]])

            test = SOURCES / "tests/python/run_test.py"
            own["AMAXSCOPE_TEST_PYTHON"] = str(python)
            run(python, test, "--needs=native", SOURCES / "tests/python/python_session_test.py", env=own, cwd=folder)
