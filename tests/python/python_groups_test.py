"""Groups of callbacks: what a session makes of what they answer and raise. The ranks are threads of this process."""

import array
import ctypes
import threading
import unittest

import amaxscope
from support import STATISTICS, TemporaryFolder, records

FP8 = STATISTICS.replace("stats: [cur_amax]\n      freq: 2", "stats: [cur_amax, l1_norm]\n      freq: 1")
# A feature that shares a scale over tp.
SCALED = """
all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    PerTensorScaling:
      enabled: True
      gemms: [fprop]
      tensors: [activation]
"""
LETTERS = {"f64": "d", "f32": "f", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}


class Job:
    """Ranks that are threads, and where they meet."""

    def __init__(self, ranks):
        self.barrier = threading.Barrier(ranks, timeout=20)
        self.given = [None] * ranks
        self.lock = threading.Lock()
        self.parts = {}

    def exchange(self, rank, value):
        """What every rank gave."""
        self.given[rank] = value
        self.barrier.wait()
        everything = list(self.given)
        self.barrier.wait()
        return everything


class ThreadCollectives:
    """One rank's."""

    def __init__(self, job, rank, world_ranks):
        self._job, self.rank, self.size, self.world_ranks = job, rank, len(world_ranks), world_ranks
        self.asked = []

    def all_reduce(self, buffer, dtype, op):
        self.asked.append("all_reduce")
        assert buffer.format == LETTERS[dtype], (buffer.format, dtype)
        mask = (1 << (8 * buffer.itemsize)) - 1
        combine = {"max": max, "min": min, "sum": sum}[op]
        columns = zip(*self._job.exchange(self.rank, buffer.tolist()))
        for i, column in enumerate(columns):
            value = combine(column)
            buffer[i] = value & mask if buffer.format in "IQ" else value

    def all_gather(self, part, whole):
        self.asked.append("all_gather")
        whole[:] = b"".join(self._job.exchange(self.rank, bytes(part)))

    def broadcast(self, buffer, root):
        buffer[:] = self._job.exchange(self.rank, bytes(buffer))[root]

    def barrier(self):
        self._job.exchange(self.rank, None)

    def split(self, color, key):
        wishes = self._job.exchange(self.rank, (color, key))
        members = [rank for _, rank in sorted((k, r) for r, (c, k) in enumerate(wishes) if c == color)]
        if color < 0:
            self._job.exchange(self.rank, None)
            return None
        if members[0] == self.rank:
            self._job.parts[color] = Job(len(members))
        self._job.barrier.wait()
        part = self._job.parts[color]
        self._job.barrier.wait()
        return ThreadCollectives(part, members.index(self.rank), [self.world_ranks[rank] for rank in members])

    def abort(self, status, reason):
        raise SystemExit(f"{status}: {reason}")


def on_ranks(ranks, work):
    """work(collectives) on each rank; the first failure of any is raised."""
    job, failures = Job(ranks), []

    def rank_of(rank):
        try:
            work(ThreadCollectives(job, rank, list(range(ranks))))
        except BaseException as error:
            failures.append(error)
            job.barrier.abort()

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def matrix(values, rows=1):
    return memoryview(array.array("f", values)).cast("B").cast("f", [rows, len(values) // rows])


class Groups(unittest.TestCase):
    def test_statistics_and_scales_are_of_all_ranks(self):
        with TemporaryFolder() as folder:

            def work(collectives):
                world = amaxscope.Group.from_callbacks(collectives)
                self.assertEqual((world.rank, world.size), (collectives.rank, 4))
                with amaxscope.Session(config_text=FP8, log_dir=folder, world=world, tp_size=2) as session:
                    first = collectives.rank // 2 * 2
                    self.assertEqual(session.tp_ranks, [first, first + 1])
                    layer = session.layer("fc1", parallel="row")
                    layer.inspect("activation", matrix([1.0 + collectives.rank, -0.5]))
                    session.step()
                    self.assertEqual(world.calls["trainer"], 0)
                    self.assertGreater(world.calls["debug"], 0)

            on_ranks(4, work)
            (record,) = records(folder)
            self.assertEqual(record["group"], [0, 1, 2, 3])
            self.assertEqual(record["stats"], {"cur_amax": 4.0, "l1_norm": 1 + 2 + 3 + 4 + 4 * 0.5})

        def scaled(collectives):
            world = amaxscope.Group.from_callbacks(collectives)
            with amaxscope.Session(config_text=SCALED, world=world, tp_size=2) as session:
                layer = session.layer("fc1", parallel="row", recipe="delayed")
                quantized = layer.quantize("activation", matrix([56.0 * (1 + collectives.rank)]))
                self.assertEqual(quantized.scale_inv, 112.0 / 448)  # of rank 1

        on_ranks(2, scaled)

    def test_an_idle_step_asks_nothing_of_the_group(self):
        def work(collectives):
            world = amaxscope.Group.from_callbacks(collectives)
            with amaxscope.Session(config_text=STATISTICS, world=world) as session:
                layer = session.layer("fc1")
                layer.inspect("activation", matrix([1.0]))
                session.step()
                before = world.calls
                session.step()  # iteration 1 is not due
                self.assertEqual(world.calls, before)

        on_ranks(2, work)

    def test_split_orders_by_key_and_leaves_out_negative_colors(self):
        def work(collectives):
            world = amaxscope.Group.from_callbacks(collectives)
            rank = collectives.rank
            part = world.split(-1 if rank == 2 else 7, key=-rank)
            if rank == 2:
                self.assertIsNone(part)
            else:
                self.assertEqual((part.world_ranks, part.rank), ([3, 1, 0], [3, 1, 0].index(rank)))

        on_ranks(4, work)

    def test_what_a_callback_raises_is_the_cause_of_what_follows(self):
        class Broken(ThreadCollectives):
            def broadcast(self, buffer, root):
                raise ConnectionError("the switch is on fire")

            def split(self, color, key):
                return Broken(self._job, self.rank, self.world_ranks)

        group = amaxscope.Group.from_callbacks(Broken(Job(1), 0, [0, 1]))
        with self.assertRaisesRegex(amaxscope.Error, "broadcast of the program's group failed.*on fire") as raised:
            amaxscope.Session(config_text=STATISTICS, world=group, on_failure="detach")
        self.assertIsInstance(raised.exception.__cause__, ConnectionError)

    def test_an_interrupt_in_a_callback_stays_one(self):
        class Interrupted(ThreadCollectives):
            def broadcast(self, buffer, root):
                raise KeyboardInterrupt

            def split(self, color, key):
                return Interrupted(self._job, self.rank, self.world_ranks)

        group = amaxscope.Group.from_callbacks(Interrupted(Job(1), 0, [0, 1]))
        with self.assertRaises(KeyboardInterrupt):
            amaxscope.Session(config_text=STATISTICS, world=group)

    def test_a_session_is_not_used_from_its_own_callbacks(self):
        said = []

        class Nosy(ThreadCollectives):
            """Of two ranks that are always of one mind."""

            def all_reduce(self, buffer, dtype, op):
                for session in sessions:
                    try:
                        session.step()
                    except amaxscope.UsageError as error:
                        said.append(str(error))

            def all_gather(self, part, whole):
                whole[:] = bytes(part) * 2

            def broadcast(self, buffer, root):
                pass

            def split(self, color, key):
                return Nosy(Job(1), 0, self.world_ranks)

        sessions = []
        with amaxscope.Session(config_text=STATISTICS, world=amaxscope.Group.from_callbacks(Nosy(Job(1), 0, [0, 1]))) as session:
            layer = session.layer("fc1")
            sessions.append(session)
            layer.inspect("activation", matrix([1.0]))
            session.step()
            sessions.clear()
        self.assertTrue(said)
        self.assertIn("one thread at a time", said[0])

    def test_a_group_that_lacks_a_method_says_which(self):
        class Half:
            rank, size = 0, 2

            def all_reduce(self, buffer, dtype, op):
                pass

        with self.assertRaisesRegex(amaxscope.UsageError, r"the group has no all_gather\(\)"):
            amaxscope.Group.from_callbacks(Half())

    def test_a_buffer_that_is_kept_is_an_error(self):
        def part(buffer):
            return buffer[:1]

        def array_of_bytes(buffer):
            return (ctypes.c_char * len(buffer)).from_buffer(buffer)

        for look in (part, memoryview, array_of_bytes):
            kept = []

            class Keeper(ThreadCollectives):
                def broadcast(self, buffer, root):
                    kept.append(look(buffer))

                def split(self, color, key):
                    return Keeper(Job(1), 0, self.world_ranks)

            group = amaxscope.Group.from_callbacks(Keeper(Job(1), 0, [0, 1]))
            with self.assertRaisesRegex(amaxscope.Error, "broadcast of the program's group failed.*(in use|exported)"):
                amaxscope.Session(config_text=STATISTICS, world=group)

    def test_a_rank_that_never_comes_is_reported_at_the_deadline(self):
        class Never:
            def test(self):
                return False

        class Waiting(ThreadCollectives):
            def start_all_reduce(self, buffer, dtype, op):
                return Never()

            def split(self, color, key):
                return Waiting(Job(1), 0, self.world_ranks)

            def broadcast(self, buffer, root):
                pass

        group = amaxscope.Group.from_callbacks(Waiting(Job(1), 0, [0, 1]))
        with self.assertRaisesRegex((amaxscope.DeadlineError, amaxscope.InternalError), "0.2|200 ms|did not"):
            with amaxscope.Session(config_text=STATISTICS, world=group, deadline=0.2, on_failure="abort") as session:
                session.layer("fc1").inspect("activation", matrix([1.0]))
                session.step()
