"""amaxscope.read: what of a log directory comes out as columns, whatever state the directory is in."""

import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from log_directory import end_of_run, opening, record, step, write_rank, write_run_file

from amaxscope import _record_columns, reading


class Directory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = folder.name
        write_run_file(self.log, ("run-1", "closed"))

    def rows(self, run, *columns):
        return list(zip(*(list(run[name]) for name in columns)))


class Columns(Directory):
    def test_a_row_for_each_statistic_of_each_record(self):
        write_rank(
            self.log,
            0,
            opening(),
            step(0, record(0), record(0, tensor="gradient", phase="backward", stats={"mse_columnwise": 0.25})),
            end_of_run(0),
        )
        run = reading.read(self.log)
        self.assertEqual(len(run), 3)
        self.assertEqual(
            self.rows(run, "iteration", "layer", "tensor", "phase", "statistic", "direction", "value", "rank"),
            [
                (0, "decoder.1.fc1", "activation", "forward", "cur_amax", "", 1.0, 0),
                (0, "decoder.1.fc1", "activation", "forward", "underflows%", "rowwise", 0.5, 0),
                (0, "decoder.1.fc1", "gradient", "backward", "mse_columnwise", "columnwise", 0.25, 0),
            ],
        )
        self.assertEqual(
            set(self.rows(run, "recipe", "format", "layout", "group", "run", "flags")),
            {("current", "E4M3", "shard0", "0,1", "run-1", "")},
        )
        self.assertEqual(run.problems, [])
        self.assertEqual([entry["state"] for entry in run.runs], ["closed"])

    def test_numbers_that_json_has_none_for_and_flags(self):
        stats = {"min": "-Infinity", "max": "Infinity", "cur_amax": "NaN", "mean": 2}
        line = record(3, stats=stats, flags={"cur_amax": ["nan_amax", "zero_amax"]})
        write_rank(self.log, 0, opening(), step(3, line))
        run = reading.read(self.log)
        low, high, amax, mean = run["value"]
        self.assertEqual((low, high, mean), (-math.inf, math.inf, 2.0))
        self.assertTrue(math.isnan(amax))
        self.assertEqual(list(run["flags"]), ["", "", "nan_amax;zero_amax", ""])

    def test_numbers_are_bit_equal(self):
        write_rank(self.log, 0, opening(), step(0, record(0, stats={"a": 1.4e-45, "b": 3.2e-7, "c": 0.1 + 0.2})))
        self.assertEqual(list(reading.read(self.log)["value"]), [1.4e-45, 3.2e-7, 0.1 + 0.2])

    def test_files_of_many_ranks_come_by_number(self):
        for rank in (10, 2, 0):
            write_rank(self.log, rank, opening(rank=rank), step(0, record(0, layout="partial")))
        self.assertEqual(list(reading.read(self.log)["rank"]), [0, 0, 2, 2, 10, 10])

    def test_scalars_findings_and_events(self):
        finding = {"check": "I1", "what": "replicas differ", "layer": "x", "tensor": "weight", "ranks": [1]}
        write_rank(
            self.log,
            0,
            opening(),
            step(
                7,
                {"iteration": 7, "scalars": {"loss": 2.5, "grad_norm": "NaN"}},
                {"iteration": 6, "finding": finding},
                {"iteration": 7, "event": {"kind": "stop"}},
            ),
        )
        run = reading.read(self.log)
        self.assertEqual(run.scalars[0], (7, "loss", 2.5))
        self.assertTrue(math.isnan(run.scalars[1][2]))
        self.assertEqual(run.findings, [{"iteration": 6, "rank": 0, "run": "run-1", **finding}])
        self.assertEqual(run.events, [{"iteration": 7, "rank": 0, "run": "run-1", "kind": "stop"}])

    def test_a_series_to_plot(self):
        steps = [step(at, record(at), record(at, layer="other")) for at in range(3)]
        write_rank(self.log, 0, opening(), *steps)
        iterations, values = reading.read(self.log).series("decoder.1.fc1", "activation", "cur_amax")
        self.assertEqual((list(iterations), list(values)), ([0, 1, 2], [1.0, 2.0, 3.0]))

    def test_codes_are_the_column_in_numbers(self):
        write_rank(self.log, 0, opening(), step(0, record(0), record(0, layer="other")))
        run = reading.read(self.log)
        codes, texts = run.codes("layer")
        self.assertEqual([texts[code] for code in codes], list(run["layer"]))
        with self.assertRaisesRegex(KeyError, "no column 'stat'; there are .*statistic"):
            run["stat"]

    def test_without_numpy_columns_are_arrays_and_lists(self):
        write_rank(self.log, 0, opening(), step(0, record(0)))
        run = reading.read(self.log)
        with mock.patch.object(_record_columns, "_numpy", lambda: None):
            columns = run.to_dict()
        self.assertEqual(columns["value"].tolist(), [1.0, 0.5])
        self.assertEqual(columns["iteration"].tolist(), [0, 0])
        self.assertEqual(columns["statistic"], ["cur_amax", "underflows%"])
        self.assertEqual(columns["direction"], ["", "rowwise"])

    def test_reading_imports_no_package_of_others(self):
        write_rank(self.log, 0, opening(), step(0, record(0)))
        script = (
            "import sys; from amaxscope import reading; reading.read(sys.argv[1]); "
            "print([m for m in ('numpy', 'pandas', 'polars', 'torch', 'amaxscope._native') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script, self.log], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[]")


class States(Directory):
    def test_a_last_line_that_is_cut_off(self):
        write_rank(self.log, 0, opening(), step(0, record(0)), cut='{"iteration":1,"layer":"deco')
        run = reading.read(self.log)
        self.assertEqual(set(run["iteration"]), {0})
        self.assertRegex(run.problems[0], r"rank_0\.jsonl:4: the last line is cut off")

    def test_a_step_without_its_end_is_left_out(self):
        write_rank(self.log, 0, opening(), step(0, record(0)), record(1))
        run = reading.read(self.log)
        self.assertEqual(set(run["iteration"]), {0})
        self.assertEqual(len(run.problems), 1)
        self.assertRegex(run.problems[0], "without the line that ends it")

    def test_a_restart_goes_on_and_what_was_cut_off_counts_once(self):
        path = write_rank(self.log, 0, opening(), step(0, record(0)), record(1), cut='{"iteration":1,"la')
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")  # what a restart does
        write_rank(self.log, 0, opening("run-2"), step(1, record(1)), end_of_run(1), append=True)
        run = reading.read(self.log)
        self.assertEqual(
            self.rows(run, "iteration", "run", "statistic"),
            [(at, name, what) for at, name in ((0, "run-1"), (1, "run-2")) for what in ("cur_amax", "underflows%")],
        )
        self.assertEqual(len(run.problems), 2)

    def test_lines_that_mean_nothing_are_counted_and_said(self):
        bad = ["not json", "[1]", '{"iteration":"x"}', '{"iteration":0,"stats":[]}', '{"iteration":0,"nothing":1}',
               '{"iteration":0,"layer":"","tensor":"a","stats":{}}', "[" * 100_000, '{"iteration":0,"scalars":{"a":"b"}}']  # fmt: skip
        path = write_rank(self.log, 0, opening())
        with open(path, "ab") as file:
            file.write("\n".join(bad).encode() + b"\n\xff\xfe\n")
        write_rank(self.log, 0, step(0, record(0)), append=True)
        run = reading.read(self.log)
        self.assertEqual(len(run), 2)
        self.assertEqual(len(run.problems), len(bad) + 1)
        self.assertTrue(all(re.search(r"rank_0\.jsonl:\d+: not understood", text) for text in run.problems))

    def test_a_record_with_wrong_types_is_left_out_whole(self):
        lines = [
            record(0, stats={"min": 1.0, "max": "many"}),
            record(0, phase=["forward"]),
            record(0, stats={"min": 10**400}),
            record(0, stats={"good": 4.0}, recipe=None),
        ]
        write_rank(self.log, 0, opening(), step(0, *lines))
        run = reading.read(self.log)
        self.assertEqual(list(run["value"]), [4.0])
        self.assertEqual(list(run["recipe"]), [""])
        self.assertEqual(len(run.problems), 3)

    def test_a_line_without_an_end_does_not_fill_the_memory(self):
        path = write_rank(self.log, 0, opening())
        with open(path, "ab") as file:
            file.write(b"x" * (9 << 20) + b"\n")
        write_rank(self.log, 0, step(0, record(0)), append=True)
        run = reading.read(self.log)
        self.assertEqual(len(run), 2)
        self.assertRegex(run.problems[0], "a line of more than 4 MiB")

    def test_many_problems_are_not_all_listed(self):
        path = write_rank(self.log, 0, opening())
        with open(path, "a", encoding="utf-8") as file:
            file.write("bad\n" * 1000)
        run = reading.read(self.log)
        self.assertEqual(len(run.problems), 21)
        self.assertRegex(run.problems[-1], "more problems")

    def test_another_schema_version_is_said(self):
        write_rank(self.log, 0, opening(version=2), step(0, record(0)))
        run = reading.read(self.log)
        self.assertEqual(len(run), 2)
        self.assertRegex(run.problems[0], "schema version 2")

    def test_a_damaged_run_file_is_a_problem_and_no_more(self):
        write_rank(self.log, 0, opening(), step(0, record(0)))
        for content in ("{", "[]", '{"runs": 3}'):
            with open(os.path.join(self.log, "run.json"), "w", encoding="utf-8") as file:
                file.write(content)
            run = reading.read(self.log)
            self.assertEqual((len(run), run.runs, len(run.problems)), (2, [], 1))

    def test_no_directory_and_no_metrics(self):
        with self.assertRaisesRegex(FileNotFoundError, "no log directory of amaxscope"):
            reading.read(self.log)
        os.mkdir(os.path.join(self.log, "metrics"))
        with self.assertRaisesRegex(FileNotFoundError, "nothing was recorded yet"):
            reading.read(self.log)


class Filters(Directory):
    def setUp(self):
        super().setUp()
        lines = [
            step(at, *(record(at, layer=layer, tensor=tensor) for layer in ("a.fc1", "a.fc2") for tensor in ("weight", "output")))
            for at in range(4)
        ]  # fmt: skip
        write_rank(self.log, 0, opening("first"), *lines[:2], opening("second"), *lines[2:])
        write_rank(self.log, 1, opening(rank=1), step(9, record(9, layer="a.fc1", tensor="weight")))

    def test_each_field(self):
        cases = [
            ({"layer": "a.fc1"}, {("a.fc1", "weight"), ("a.fc1", "output")}),
            ({"layer": re.compile("c2$"), "tensor": ["output", "dgrad"]}, {("a.fc2", "output")}),
            ({"layer": lambda name: name == "a.fc2", "tensor": "weight"}, {("a.fc2", "weight")}),
            ({"rank": 1}, {("a.fc1", "weight")}),
            ({"phase": "eval"}, set()),
        ]
        for filters, expected in cases:
            with self.subTest(filters=str(filters)):
                run = reading.read(self.log, **filters)
                self.assertEqual(set(self.rows(run, "layer", "tensor")), expected)

    def test_statistic(self):
        run = reading.read(self.log, statistic=re.compile("%$"), rank=0)
        self.assertEqual(set(run["statistic"]), {"underflows%"})
        self.assertEqual(len(run), 16)

    def test_iterations_include_both_ends(self):
        for wanted, expected in (((1, 2), {1, 2}), (3, {3}), ((None, 1), {0, 1}), ((3, None), {3, 9})):
            self.assertEqual(set(reading.read(self.log, iterations=wanted)["iteration"]), expected)

    def test_run(self):
        self.assertEqual(set(reading.read(self.log, run="second")["iteration"]), {2, 3})

    def test_what_cannot_be_meant(self):
        with self.assertRaisesRegex(ValueError, "the first is after the last"):
            reading.read(self.log, iterations=(3, 1))
        with self.assertRaisesRegex(TypeError, "layer=7"):
            reading.read(self.log, layer=7)
        with self.assertRaisesRegex(TypeError, "no filter 'layers'"):
            next(reading.batches(self.log, layers="x"))


class Batches(Directory):
    def test_they_are_the_whole_in_pieces(self):
        write_rank(self.log, 0, opening(), *(step(at, record(at), record(at, layer="b")) for at in range(10)))
        pieces = list(reading.batches(self.log, rows=10, layer="b"))
        self.assertEqual([len(piece) for piece in pieces], [10, 10, 0])
        together = [value for piece in pieces for value in piece["value"]]
        self.assertEqual(together, list(reading.read(self.log, layer="b")["value"]))
        self.assertEqual([entry["run_id"] for entry in pieces[1].runs], ["run-1"])


class Frames(Directory):
    def setUp(self):
        super().setUp()
        write_rank(self.log, 0, opening(), step(0, record(0, flags={"cur_amax": ["zero_amax"]})), step(1, record(1)))
        self.run_ = reading.read(self.log)

    def expected(self):
        return [tuple(row) for row in zip(*(list(column) for column in self.run_.to_dict().values()))]

    def test_pandas(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("no pandas")
        frame = self.run_.to_pandas()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual([tuple(row) for row in frame.itertuples(index=False)], self.expected())
        self.assertEqual(str(frame["layer"].dtype), "category")

    def test_polars(self):
        try:
            import polars
        except ImportError:
            self.skipTest("no polars")
        frame = self.run_.to_polars()
        self.assertIsInstance(frame, polars.DataFrame)
        self.assertEqual(frame.rows(), self.expected())
