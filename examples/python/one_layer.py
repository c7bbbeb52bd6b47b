"""A training of one linear layer in FP8 that amaxscope watches. usage: one_layer.py LOG_DIR"""

import array
import random
import sys

import amaxscope

CONFIG = {
    "every_tensor": {
        "enabled": True,
        "layers": {"layer_types": ["all"]},
        "transformer_engine": {
            "LogFp8TensorStats": {
                "enabled": True,
                "tensors": ["activation", "weight", "gradient"],
                "stats": ["underflows%"],
                "freq": 5,
            },
        },
    }
}


def matrix(rows, cols, scale):
    """f32, row-major; an array of numpy or a tensor of torch would do as well."""
    values = array.array("f", (random.gauss(0, scale) for _ in range(rows * cols)))
    return memoryview(values).cast("B").cast("f", [rows, cols])


weight = matrix(16, 32, 0.1)
with amaxscope.Session(CONFIG, log_dir=sys.argv[1]) as session:
    layer = session.layer("decoder.layers.1.mlp.linear_fc1", number=1, recipe="current")
    for step in range(10):
        x, dy = matrix(8, 32, 1.0), matrix(8, 16, 1e-3)
        y, saved = layer.forward(x, weight)
        dweight = amaxscope.Array.zeros([16, 32])
        dx = layer.backward(dy, saved, dweight=dweight)
        session.scalar("amax of dx", amaxscope.kernels.amax(dx))
        session.step()  # after the optimizer

run = amaxscope.read(sys.argv[1], tensor="gradient")
for iteration, statistic, value in zip(run["iteration"], run["statistic"], run["value"]):
    print(f"iteration {iteration}: {statistic} of the gradient is {value:.4g}")
