"""Metrics handed to loggers, of a run that is over and of one that goes on."""

import tempfile
import threading
import time
import unittest

from log_directory import end_of_run, opening, record, step, write_rank, write_run_file

from amaxscope import reading
from amaxscope.forwarding import forward


class ScalarLogger:
    """As nvdlfw_inspect.logging.BaseLogger."""

    def __init__(self):
        self.lines = []

    def log_scalar(self, name, value, iteration, **_):
        self.lines.append((iteration, name, value))


class WandbLikeRun:
    """Refuses what Weights & Biases would drop: a step before one that was logged."""

    def __init__(self):
        self.steps = []

    def log(self, data, step=None):
        assert not self.steps or step >= self.steps[-1][0], f"step {step} after {self.steps[-1][0]}"
        self.steps.append((step, dict(data)))


class Directory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = folder.name


class Forwarding(Directory):
    def two_ranks(self):
        write_run_file(self.log, ("run-1", "closed"))
        one = {"stats": {"cur_amax": 3.0}}
        write_rank(
            self.log,
            0,
            opening(),
            step(0, record(0, **one), {"iteration": 0, "scalars": {"loss": 2.0}}),
            step(2, record(2, phase="eval", **one)),
            end_of_run(2),
        )
        write_rank(
            self.log,
            1,
            opening(rank=1),
            step(0, record(0, layout="partial", tensor="output", **one)),
            step(1, record(1, layer="late", **one)),
            end_of_run(2),
        )

    EXPECTED = [
        (0, {"decoder.1.fc1_activation_cur_amax": 3.0, "loss": 2.0, "decoder.1.fc1_output_cur_amax_rank_1": 3.0}),
        (1, {"late_activation_cur_amax": 3.0}),
        (2, {"decoder.1.fc1_activation_eval_cur_amax": 3.0}),
    ]

    def test_names_and_order(self):
        self.two_ranks()
        for count, logger in ((5, WandbLikeRun()), (5, WandbLikeRun())):
            self.assertEqual(forward(self.log, logger), count)
            self.assertEqual(logger.steps, self.EXPECTED)

    def test_of_what_was_read(self):
        self.two_ranks()
        logger = WandbLikeRun()
        self.assertEqual(reading.read(self.log).forward(logger), 5)
        self.assertEqual(logger.steps, self.EXPECTED)

    def test_a_scalar_logger_and_a_function(self):
        self.two_ranks()
        scalar, calls = ScalarLogger(), []
        forward(self.log, scalar, scalars=False)
        forward(self.log, lambda iteration, values: calls.append((iteration, values)))
        self.assertEqual(scalar.lines[0], (0, "decoder.1.fc1_activation_cur_amax", 3.0))
        self.assertNotIn("loss", [name for _, name, _ in scalar.lines])
        self.assertEqual(calls, self.EXPECTED)

    def test_filters_and_what_is_no_logger(self):
        self.two_ranks()
        logger = WandbLikeRun()
        self.assertEqual(forward(self.log, logger, layer="late", scalars=False), 1)
        with self.assertRaisesRegex(TypeError, "log_scalar"):
            forward(self.log, object())
        with self.assertRaisesRegex(TypeError, "no option 'layers'"):
            forward(self.log, logger, layers="x")


class Following(Directory):
    """The writer is this test; the follower runs in a thread."""

    def follow(self, logger, **options):
        result = {}

        def work():
            result["count"] = forward(self.log, logger, follow=True, poll=0.01, **options)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        return thread, result

    def wait_for(self, condition):
        end = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), end, "what was written did not arrive")
            time.sleep(0.005)

    def test_it_starts_before_the_first_file_and_ends_with_the_run(self):
        logger = WandbLikeRun()
        thread, result = self.follow(logger, settle=60.0)
        write_run_file(self.log, ("run-1", "unclosed"))
        write_rank(self.log, 0, opening(), step(0, record(0)), cut='{"iteration":1,"layer":"x"')
        self.wait_for(lambda: len(logger.steps) == 1)
        with open(f"{self.log}/metrics/rank_0.jsonl", "a", encoding="utf-8") as file:
            file.write(',"tensor":"weight","stats":{"a":1.5}}\n')
        write_rank(self.log, 0, step(1), append=True)
        self.wait_for(lambda: len(logger.steps) == 2)
        self.assertEqual(logger.steps[1], (1, {"x_weight_a": 1.5}))
        write_rank(self.log, 0, step(2, record(2)), end_of_run(2), append=True)
        write_run_file(self.log, ("run-1", "closed"))
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual([iteration for iteration, _ in logger.steps], [0, 1, 2])
        self.assertEqual(result["count"], 5)

    def test_an_iteration_waits_for_ranks_that_are_behind(self):
        logger = WandbLikeRun()
        write_run_file(self.log, ("run-1", "unclosed"))
        write_rank(self.log, 0, opening(), step(0, record(0)), step(1, record(1)))
        write_rank(self.log, 1, opening(rank=1), step(0, record(0, layer="other")))
        thread, _ = self.follow(logger, settle=60.0)
        self.wait_for(lambda: len(logger.steps) == 1)
        time.sleep(0.1)
        self.assertEqual(len(logger.steps), 1)
        write_rank(self.log, 1, step(1, record(1, layer="other")), append=True)
        self.wait_for(lambda: len(logger.steps) == 2)
        self.assertEqual(len(logger.steps[1][1]), 4)
        write_rank(self.log, 0, end_of_run(1), append=True)
        write_run_file(self.log, ("run-1", "closed"))
        time.sleep(0.1)
        self.assertTrue(thread.is_alive())  # rank 1 is late with its last step
        write_rank(self.log, 1, step(2, record(2)), end_of_run(2), append=True)
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual(logger.steps[2][0], 2)

    def test_a_rank_that_died_at_the_end_holds_it_up_for_the_settle_time_only(self):
        logger = WandbLikeRun()
        write_run_file(self.log, ("run-1", "closed"))
        write_rank(self.log, 0, opening(), step(0, record(0)), end_of_run(0))
        write_rank(self.log, 1, opening(rank=1), step(0, record(0, layer="other")))
        thread, result = self.follow(logger, settle=0.2)
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual(result["count"], 4)

    def test_a_rank_that_writes_nothing_holds_it_up_for_the_settle_time_only(self):
        logger = WandbLikeRun()
        write_run_file(self.log, ("run-1", "unclosed"))
        write_rank(self.log, 0, opening(), *(step(at, record(at)) for at in range(3)))
        write_rank(self.log, 1, opening(rank=1), step(0, record(0, layer="other")))
        stopped = threading.Event()
        thread, _ = self.follow(logger, settle=0.05, stop=stopped.is_set)
        self.wait_for(lambda: len(logger.steps) == 3)
        stopped.set()
        thread.join(20)
        self.assertFalse(thread.is_alive())

    def test_a_killed_run_ends_by_timeout_and_a_restart_is_followed(self):
        logger = WandbLikeRun()
        write_run_file(self.log, ("run-1", "unclosed"), ("run-2", "unclosed"))
        write_rank(self.log, 0, opening(), step(0, record(0)), record(1), opening("run-2"), step(1, record(1)))
        thread, result = self.follow(logger, timeout=0.2)
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual([iteration for iteration, _ in logger.steps], [0, 1])
        self.assertEqual(result["count"], 4)
