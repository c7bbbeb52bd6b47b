"""Runs a unittest file of this folder, or says what it needs and exits with 77, which CTest reports as SKIPPED.

usage: run_test.py [--needs=a,b] [--ranks=n [--timeout=seconds]] FILE
needs   modules; "native" is the compiled part of amaxscope
ranks   starts n processes of this with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun does
AMAXSCOPE_TEST_PYTHON in the environment is another interpreter to do all of this with.
"""

import argparse
import importlib.util
import os
import runpy
import socket
import subprocess
import sys
import time
import unittest

SKIPPED = 77


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec("amaxscope._native" if module == "native" else module) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_ranks(ranks: int, timeout: float, file: str) -> int:
    """The status of the first rank that fails; the others are ended then. A rank that has nothing to test is no failure."""
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    jobs = [
        subprocess.Popen([sys.executable, __file__, file], env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)))
        for rank in range(ranks)
    ]
    end = time.monotonic() + timeout
    try:
        while True:
            statuses = [job.poll() for job in jobs]
            failed = [status for status in statuses if status not in (None, 0, SKIPPED)]
            if failed:
                return abs(failed[0])
            if None not in statuses:
                return 0 if 0 in statuses else SKIPPED
            if time.monotonic() > end:
                waiting = [rank for rank, status in enumerate(statuses) if status is None]
                print(f"run_test: after {timeout:g} s ranks {waiting} have not ended", file=sys.stderr)
                return 124
            time.sleep(0.02)
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def run_here(file: str) -> int:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    names = runpy.run_path(file, run_name="amaxscope_test")
    cases = [case for case in names.values() if isinstance(case, type) and issubclass(case, unittest.TestCase)]
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    result = unittest.TextTestRunner(verbosity=1).run(unittest.TestSuite(load(case) for case in cases))
    if result.testsRun == 0:
        print(f"run_test: {file} has no test", file=sys.stderr)
        return 1
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        print("SKIPPED:", "; ".join(sorted({reason for _, reason in result.skipped})))
        return SKIPPED
    return 0 if result.wasSuccessful() else 1


def main() -> int:
    other = os.environ.get("AMAXSCOPE_TEST_PYTHON")
    if other and os.path.abspath(other) != os.path.abspath(sys.executable):
        os.execv(other, [other, *sys.argv])
    parser = argparse.ArgumentParser()
    parser.add_argument("--needs", default="")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("file")
    given = parser.parse_args()
    missing = [module for module in given.needs.split(",") if module and not is_there(module)]
    if missing:
        print(f"SKIPPED: {sys.executable} has no {', '.join(missing)}")
        return SKIPPED
    if given.ranks is not None:
        return run_ranks(given.ranks, given.timeout, given.file)
    return run_here(given.file)


if __name__ == "__main__":
    sys.exit(main())
