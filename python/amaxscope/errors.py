"""What amaxscope raises. Texts are those of the library: what was found, where, what is allowed, what to do."""


class Error(Exception):
    """Base of all of them."""


class UsageError(Error, ValueError):
    """A wrong call or argument."""


class ConfigError(Error, ValueError):
    """The debug YAML is wrong; the text has file, line and column."""


class InputError(Error, ValueError):
    """A file is wrong or missing."""


class TensorError(Error, ValueError):
    """The dtype, shape, layout or place of a tensor does not fit."""


class MismatchError(Error):
    """Ranks of a group disagree."""


class DeadlineError(Error, TimeoutError):
    """A collective did not complete in time."""


class IoError(Error, OSError):
    """The operating system refused a read or write."""


class Stopped(Error):
    """A feature ended the run on all ranks, as the config asked (action: stop). Raised by Session.step()."""


class InternalError(Error, RuntimeError):
    """A bug of the library, or a callback that failed; then that failure is the cause (__cause__)."""


# By amaxscope_status of capi/amaxscope.h.
BY_STATUS = {
    1: UsageError,
    2: ConfigError,
    3: InputError,
    4: TensorError,
    5: MismatchError,
    6: DeadlineError,
    7: IoError,
    8: Stopped,
    9: InternalError,
    10: MemoryError,
}
