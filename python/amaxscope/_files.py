"""How files of log directories are opened. Such a directory may be shared, or be of somebody else: what lies under a name
there need not be a file of ours, or a file at all."""

import json
import os
import stat

_MOST_VALUES = 4_000_000  # of a JSON text; some 100 bytes of memory each


def open_regular(path):
    """To read bytes. A pipe is not waited for and a device not read: OSError for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return _regular(descriptor, path, "rb")


def open_to_append(path):
    """To append bytes to; made if need be. A symbolic link under that name is not followed. OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return _regular(os.open(path, flags, 0o666), path, "ab")


def replace(path, text):
    """Gives a file this content, whole or not at all. A link under that name is replaced and not followed. OSError."""
    attempt = 0
    while True:
        temporary = f"{path}.{os.getpid()}-{attempt}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            break
        except FileExistsError:  # of a process that was killed, or of a stranger
            attempt += 1
            if attempt == 1000:
                raise
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def json_of(text):
    """As json.loads, of bytes; ValueError also for what is nested too deeply or would become too many objects."""
    if sum(text.count(mark) for mark in (b",", b":", b"[", b"{")) > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def on_a_terminal(text):
    """What may be printed: a "?" for each character that a terminal acts on instead of showing it."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def _regular(descriptor, path, mode):
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: not a regular file")
    return os.fdopen(descriptor, mode)
