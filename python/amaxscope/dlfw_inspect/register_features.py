"""Loaded by nvidia-dlfw-inspect, by its path, each time that it is initialised."""

from nvdlfw_inspect.registry import Registry

from amaxscope._dlfw.registration import register

register(Registry)
