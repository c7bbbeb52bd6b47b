"""Log directories of strangers: what their files do to who reads or goes on with them is bounded in time and memory, and
nothing of ours is written elsewhere. The readers run in a process of their own with limits."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

from log_directory import opening, record, step, write_rank, write_run_file

from amaxscope import _files

_SECONDS = 10
_BYTES = 1 << 30
_READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
from amaxscope import reading
run = reading.read(sys.argv[1])
print(len(run), len(run.runs), *run.problems, sep="\\n")
""".format(bytes=_BYTES, seconds=_SECONDS)


class Hostile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, "log")
        os.mkdir(self.log)
        write_run_file(self.log, ("run-1", "closed"))
        write_rank(self.log, 0, opening(), step(0, record(0)))
        self.metrics = os.path.join(self.log, "metrics", "rank_0.jsonl")
        self.run_file = os.path.join(self.log, "run.json")

    def read(self):
        """(rows, runs, problems)"""
        done = subprocess.run([sys.executable, "-c", _READ, self.log], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = done.stdout.splitlines()
        return int(lines[0]), int(lines[1]), "\n".join(lines[2:])

    def instead(self, path, make):
        os.unlink(path)
        make(path)
        return self.read()

    def test_whole(self):
        self.assertEqual(self.read(), (2, 1, ""))

    def test_what_is_no_file(self):
        for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
            rows, runs, problems = self.instead(self.metrics, make)
            self.assertEqual((rows, runs), (0, 1))
            self.assertIn("rank_0.jsonl", problems)
            os.rmdir(self.metrics) if os.path.isdir(self.metrics) else os.unlink(self.metrics)
            write_rank(self.log, 0, opening(), step(0, record(0)))
            self.assertEqual(self.instead(self.run_file, make)[:2], (2, 0))
            os.rmdir(self.run_file) if os.path.isdir(self.run_file) else os.unlink(self.run_file)
            write_run_file(self.log, ("run-1", "closed"))

    def test_a_link_to_itself(self):
        rows, _, problems = self.instead(self.metrics, lambda path: os.symlink(path, path))
        self.assertEqual(rows, 0)
        self.assertIn("rank_0.jsonl", problems)

    def test_a_hole_of_a_tebibyte(self):
        for path in (self.metrics, self.run_file):
            with open(path, "r+b") as file:
                file.truncate(1 << 40)
        rows, runs, problems = self.read()
        self.assertEqual((rows, runs), (2, 0))
        self.assertIn("a line of more than 64 MiB; the file is read no further", problems)
        self.assertIn("run.json: more than 256 MiB; left out", problems)

    def test_nesting_and_more_values_than_memory(self):
        for text, why in (
            (b"[" * 1_000_000, "no JSON"),
            (b'{"runs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "no JSON: nested too deeply"),
            (b'{"runs":[' + b"[]," * 20_000_000 + b"[]]}", "no JSON: more than 4000000 values"),
        ):
            with open(self.run_file, "wb") as file:
                file.write(text)
            rows, runs, problems = self.read()
            self.assertEqual((rows, runs), (2, 0))
            self.assertIn(why, problems)
        with open(self.metrics, "ab") as file:
            file.write(b"[" * (3 << 20) + b"\n")
        self.assertIn("rank_0.jsonl:4: not understood", self.read()[2])

    def test_names(self):
        with open(self.metrics, "ab") as file:
            file.write(b'{"iteration":1,"layer":"\xff\xfe","tensor":"t","phase":"forward","stats":{"a":1}}\n')
            for name in ("n" * 10_000, "../../etc/passwd", "<script>alert(1)</script>", "\x1b[2J"):
                file.write(json.dumps(record(1, layer=name)).encode() + b"\n")
            file.write(b'{"iteration":1,"iteration":2,"end_of_step":true,"records":4}\n')
        rows, _, problems = self.read()
        self.assertEqual(rows, 2 + 4 * 2)
        self.assertIn("rank_0.jsonl:4: not understood", problems)


class Written(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.theirs = os.path.join(self.folder, "of_somebody")
        with open(self.theirs, "w", encoding="utf-8") as file:
            file.write("theirs")
        self.path = os.path.join(self.folder, "ours")

    def unchanged(self):
        with open(self.theirs, encoding="utf-8") as file:
            self.assertEqual(file.read(), "theirs")

    def test_a_link_is_not_appended_through(self):
        os.symlink(self.theirs, self.path)
        with self.assertRaises(OSError):
            _files.open_to_append(self.path)
        self.unchanged()

    def test_a_pipe_is_not_waited_for(self):
        os.mkfifo(self.path)
        for opens in (_files.open_to_append, _files.open_regular):
            with self.assertRaises(OSError):
                opens(self.path)

    def test_a_link_is_replaced_and_names_in_between_are_not_taken_over(self):
        os.symlink(self.theirs, self.path)
        os.symlink(self.theirs, f"{self.path}.{os.getpid()}-0.tmp")
        _files.replace(self.path, "mine")
        self.unchanged()
        self.assertFalse(os.path.islink(self.path))
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")

    def test_the_umask_holds(self):
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        _files.replace(self.path, "mine")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        os.umask(0)
        _files.open_to_append(os.path.join(self.folder, "grows")).close()
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.folder, "grows")).st_mode), 0o666)

    def test_nothing_that_a_terminal_acts_on_is_printed(self):
        self.assertEqual(_files.on_a_terminal("a\x1b[31m\u009b\u202eb\n"), "a?[31m??b?")
        self.assertEqual(_files.on_a_terminal("größe 1"), "größe 1")


if __name__ == "__main__":
    unittest.main()
