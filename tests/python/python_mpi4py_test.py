"""Sessions over mpi4py's communicators, under mpirun. Every rank runs every test; what fails on one fails the job."""

import array
import unittest

import amaxscope
from mpi4py import MPI
from support import STATISTICS, TemporaryFolder, f32, records

RANK, RANKS = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
CONFIG = STATISTICS.replace("stats: [cur_amax]\n      freq: 2", "stats: [cur_amax, l1_norm, numel]\n      freq: 2")
TP = 2 if RANKS > 1 else 1


def matrix(values, rows=1):
    return memoryview(array.array("f", values)).cast("B").cast("f", [rows, len(values) // rows])


def shared_folder():
    """One for all ranks, which rank 0 makes and removes."""
    folder = TemporaryFolder()
    path = MPI.COMM_WORLD.bcast(folder.name if RANK == 0 else None)
    return folder, path


class Mpi(unittest.TestCase):
    def test_records_are_of_all_ranks(self):
        folder, path = shared_folder()
        with folder:
            world = amaxscope.Group.from_mpi4py(MPI.COMM_WORLD)
            with amaxscope.Session(config_text=CONFIG, log_dir=path, world=world, tp_size=TP) as session:
                layer = session.layer("fc1", number=1, parallel="column")
                for step in range(3):
                    # tp ranks hold the same activation, data-parallel ones others
                    layer.inspect("activation", matrix([1.0 + RANK // TP + step, 0.25]))
                    session.step()
            MPI.COMM_WORLD.Barrier()
            found = records(path)
            replicas = RANKS // TP
            self.assertEqual([record["iteration"] for record in found], [0, 2])
            for record in found:
                values = [1.0 + dp + record["iteration"] for dp in range(replicas)]
                expected = {"cur_amax": max(values), "l1_norm": sum(values) + 0.25 * replicas, "numel": 2 * replicas}
                self.assertEqual(record["stats"], expected)
            MPI.COMM_WORLD.Barrier()

    def test_a_column_parallel_input_under_sequence_parallelism_has_one_scale_and_is_gathered(self):
        world = amaxscope.Group.from_mpi4py(MPI.COMM_WORLD)
        with amaxscope.Session(world=world, tp_size=RANKS) as session:
            layer = session.layer("fc1", parallel="column", sequence_parallel=True, recipe="current")
            self.assertEqual(layer.gathers("activation"), RANKS > 1)
            shard = layer.quantize("activation", matrix([7.0 * (1 + RANK), 3.5, 1.0, -2.0], 2))
            self.assertEqual(shard.scale_inv, f32(1 / f32(448 / f32(7.0 * RANKS))))
            if RANKS > 1:
                whole = layer.gather("activation", shard)
                codes = memoryview(whole.codes).tolist()
                parts = MPI.COMM_WORLD.allgather(memoryview(shard.codes).tolist())
                self.assertEqual(codes, [row for part in parts for row in part])
                self.assertEqual(world.calls["debug"], 0)  # nothing is observed; the scale is the recipe's

    def test_ranks_that_disagree_are_told_what_about(self):
        world = amaxscope.Group.from_mpi4py(MPI.COMM_WORLD)
        if RANKS == 1:
            return
        session = amaxscope.Session(config_text=CONFIG, world=world, on_failure="detach")
        session.layer("fc1" if RANK == 0 else "fc2")
        try:
            session.freeze()
        except amaxscope.MismatchError as error:
            self.assertIn("fc", str(error))
        else:
            self.assertFalse(session.enabled)  # detached, as it was told to
        session.close()

    def test_the_communicator_itself_is_not_used(self):
        comm = MPI.COMM_WORLD.Dup()
        world = amaxscope.Group.from_mpi4py(comm)
        pending = None
        if RANKS > 1:
            pending = comm.irecv(source=(RANK + 1) % RANKS, tag=MPI.ANY_TAG)
        with amaxscope.Session(config_text=CONFIG, world=world) as session:
            session.layer("fc1").inspect("activation", matrix([1.0]))
            session.step()
        if pending is not None:
            comm.send("mine", dest=(RANK - 1) % RANKS)
            self.assertEqual(pending.wait(), "mine")
        comm.Free()
