"""What one would write in Python instead of the CPU kernels: torch, numpy and ml_dtypes, where this python3 has them, on one
thread. bench/run times them in turns with our items."""
import importlib
import importlib.util
import time

SIZES = {"256x1024": (256, 1024), "4096x4096": (4096, 4096)}


def find(name):
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def moved(item, count):
    """Bytes that our item reads and writes, as bench_kernels counts them."""
    width = 2 if "/bf16" in item else 4
    return count * (width + 1) if item.startswith("cast") else count * width


def torch_peers(torch, rows, cols):
    torch.set_num_threads(1)
    x = torch.randn(rows, cols)
    half = x.to(torch.bfloat16)

    def seven(t):  # the calls of a debug module that takes its statistics from torch one by one
        return lambda: (t.abs().max(), t.min(), t.max(), t.mean(), t.std(), t.norm(1), t.norm(2))

    peers = [("amax/f32", "torch_aminmax", lambda: torch.aminmax(x)),
             ("amax/f32", "torch_abs_max", lambda: x.abs().max()),
             ("amax/bf16", "torch_aminmax", lambda: torch.aminmax(half)),
             ("stats/f32", "torch_seven_calls", seven(x)),
             ("stats/bf16", "torch_seven_calls", seven(half))]
    if hasattr(torch, "float8_e4m3fn"):
        peers += [("cast_e4m3/f32", "torch_to_float8", lambda: (x * 37.5).clamp(-448, 448).to(torch.float8_e4m3fn)),
                  ("cast_e4m3/bf16", "torch_to_float8", lambda: (half * 37.5).clamp(-448, 448).to(torch.float8_e4m3fn))]
    return peers


def numpy_peers(numpy, ml_dtypes, rows, cols):
    x = numpy.random.default_rng(7).standard_normal((rows, cols), dtype=numpy.float32)
    peers = [("amax/f32", "numpy_abs_max", lambda: numpy.abs(x).max()),
             ("stats/f32", "numpy_seven_calls",
              lambda: (numpy.abs(x).max(), x.min(), x.max(), x.mean(), x.std(), numpy.abs(x).sum(), numpy.sqrt((x * x).sum())))]
    if ml_dtypes:
        peers.append(("cast_e4m3/f32", "ml_dtypes_astype",
                      lambda: numpy.clip(x * numpy.float32(37.5), -448, 448).astype(ml_dtypes.float8_e4m3fn)))
    return peers


def all_peers():
    """[(our item with its size, name of the peer, bytes that our item moves, what to time)], and what was looked for in vain."""
    torch, numpy, ml_dtypes = find("torch"), find("numpy"), find("ml_dtypes")
    missing = [name for name, module in (("torch", torch), ("numpy", numpy), ("ml_dtypes", ml_dtypes)) if module is None]
    found = []
    for size, (rows, cols) in SIZES.items():
        peers = (torch_peers(torch, rows, cols) if torch else []) + (numpy_peers(numpy, ml_dtypes, rows, cols) if numpy else [])
        found += [(f"{item}/{size}", name, moved(item, rows * cols), action) for item, name, action in peers]
    return found, missing


def least_seconds(action, at_least=0.05):
    """Of some calls, for about at_least seconds."""
    action()
    best, until = float("inf"), time.perf_counter() + at_least
    while True:
        start = time.perf_counter()
        action()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= until:
            return best
