"""amaxscope: a precision-debug runtime for low-precision training. docs/python.md shows how to use it.

Importing the package imports nothing else: numpy, torch and mpi4py are used only when something of theirs is handed in,
and the compiled part is loaded with the first name that needs it.
"""

from importlib import import_module
from typing import Any

# Each name and the module that has it; modules are imported when a name is asked for. One name a line.
_NAMES = {
    "Array": "_native",
    "Collectives": "groups",
    "ConfigError": "errors",
    "DeadlineError": "errors",
    "Error": "errors",
    "Group": "groups",
    "InputError": "errors",
    "InternalError": "errors",
    "IoError": "errors",
    "Layer": "session",
    "MismatchError": "errors",
    "Preset": "session",
    "Quantized": "session",
    "Quantizer": "session",
    "Session": "session",
    "Stopped": "errors",
    "TensorError": "errors",
    "UsageError": "errors",
    "View": "_native",
    "codes": "tensors",
    "contiguous": "tensors",
    "forward": "forwarding",
    "multiply": "session",
    "presets": "session",
    "read": "reading",
    "version": "_native",
}

_MODULES = ("kernels",)

__all__ = sorted([*_NAMES, *_MODULES])  # noqa: PLE0605  (it is a list)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(f"amaxscope has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
