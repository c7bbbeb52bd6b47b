"""The trainings that are killed: how each is started, at its beginning or from its newest state."""

import os
import signal
import subprocess
import time

DATA = "".join(f"line {number * number} of the text\n" for number in range(200))
CONFIG = """all:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [activation, weight, gradient], stats: [cur_amax, mean, l2_norm]}
    LogFp8TensorStats: {enabled: True, tensors: [activation], stats: [underflows%, mse], freq: 2}
    Trends: {enabled: True, tensors: [activation, gradient]}
    DumpTensors: {enabled: True, tensors: [activation, weight], high_precision_tensor: True, freq: 4}
    InvariantGuard: {enabled: True, tensors: [activation, weight, gradient]}
"""


class Job:
    """One training in a folder of its own: `run` below it is what is watched and checked."""

    ranks = 1
    makes_events = False

    def __init__(self, folder, killer):
        self.folder = folder
        self.run_folder = os.path.join(folder, "run")
        self.killer = killer
        os.makedirs(self.run_folder)

    def environment(self, kill_at=None, part=0, rank=None, trace=None):
        result = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        # The preloaded library comes before that of a sanitizer.
        result["ASAN_OPTIONS"] = result.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        if kill_at is None and trace is None:
            return result
        result.update(LD_PRELOAD=self.killer, AMAXSCOPE_KILL_BELOW=self.run_folder)
        if kill_at is not None:
            result.update(AMAXSCOPE_KILL_AT=str(kill_at), AMAXSCOPE_KILL_PART=str(part))
        if rank is not None:
            result["AMAXSCOPE_KILL_RANK"] = str(rank)
        if trace is not None:
            result["AMAXSCOPE_KILL_TRACE"] = trace
        return result

    def start(self, **settings):
        self.before_start()
        self.errors = open(os.path.join(self.folder, "stderr"), "w+b")
        return subprocess.Popen(
            self.command(),
            cwd=self.folder,
            env=self.environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
        )

    def before_start(self):
        pass

    def has_state(self):
        return os.path.exists(os.path.join(self.run_folder, "states", "newest"))

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-3000:]

    def finish(self, process, seconds):
        """The exit status; a process that does not end in time is an error of its own."""
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_all(process)
            raise AssertionError(f"still running after {seconds} s: {self.said()}") from None
        self.errors.close() if status == 0 else None
        return status


class SmallJob(Job):
    """crash_job: one process, every kind of file, some 50 ms."""

    name = "small"
    makes_events = True
    seconds = 20

    def __init__(self, folder, killer, program):
        super().__init__(folder, killer)
        self.program = program

    def command(self):
        return [self.program, "--folder", self.run_folder]


class TrainJob(Job):
    """`amaxscope train` on one rank or, under mpirun, on two."""

    seconds = 90

    def __init__(self, folder, killer, program, mpirun, ranks):
        super().__init__(folder, killer)
        self.program, self.mpirun, self.ranks = program, mpirun, ranks
        self.name = f"train on {ranks}"
        for name, text in (("data.txt", DATA), ("config.yaml", CONFIG)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def command(self):
        start = [] if self.ranks == 1 else [self.mpirun, "-n", str(self.ranks), "--timeout", "60"]
        states, log = (os.path.join(self.run_folder, name) for name in ("states", "log"))
        options = "--steps 30 --layers 1 --hidden 32 --heads 4 --seq 16 --batch 2 --recipe delayed --save-every 5 --tensorboard"
        more = ["--tp", str(self.ranks), "--save-dir", states, "--log-dir", log]
        resume = ["--resume", states] if self.has_state() else []
        return start + [self.program, "train", "--data", "data.txt", "--config", "config.yaml", *options.split(), *more, *resume]

    def environment(self, **settings):
        result = super().environment(**settings)
        for name in ("shm", "tmp"):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        result["OMPI_MCA_btl_vader_backing_directory"] = os.path.join(self.folder, "shm")
        result["OMPI_MCA_orte_tmpdir_base"] = os.path.join(self.folder, "tmp")
        return result

    def before_start(self):
        # Without a state there is nothing to go on from, and a training that begins wants a directory of its own.
        if not self.has_state():
            subprocess.run(["rm", "-rf", os.path.join(self.run_folder, "log")], check=True)


def descendants(pid):
    """Of a process that lives, the nearest first."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def kill_all(process):
    """kill -9 of the job and of all that it has started."""
    below = descendants(process.pid)
    for pid in [process.pid, *below]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") and not is_zombie(pid) for pid in below):
        if time.monotonic() > end:
            raise AssertionError("a killed process does not end")
        time.sleep(0.002)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
