"""Reads a pickle without doing anything that it asks for.

A pickle is a program: names of functions and what to call them with. Here no name is imported and nothing is called.
The names that may occur become Global objects, what the pickle would make of them Made objects that say which name,
with which arguments and which state. Anything else, another name or an instruction that checkpoints do not need, is
refused. What is read has bounds: bytes, objects, and the nesting of keys (whose hashes are computed)."""

import struct

from ._refused import Refused


class Global:
    """A name, module.name, that stands for itself."""

    __slots__ = ("module", "name")

    def __init__(self, module, name):
        self.module = module
        self.name = name

    @property
    def full_name(self):
        return f"{self.module}.{self.name}"


class Made:
    """What a pickle would have made by calling `of` with `arguments`; `state` is what it would have set then."""

    __slots__ = ("of", "arguments", "state")

    def __init__(self, of, arguments):
        self.of = of
        self.arguments = arguments
        self.state = None


class StoredElsewhere:
    """A reference to something outside of the pickle (a persistent id)."""

    __slots__ = ("what",)

    def __init__(self, what):
        self.what = what


_MARK = object()
_LONGEST_INTEGER = 16  # bytes


class _Machine:
    def __init__(self, data, where, may_name, most_objects):
        self.data = data
        self.where = where
        self.may_name = may_name
        self.left = most_objects
        self.at = 0
        self.stack = []
        self.marks = []
        self.memo = []

    def run(self):
        data, end = self.data, len(self.data)
        while self.at < end:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                if len(self.stack) != 1 or self.marks:
                    raise self.refused("ends with another number of objects than one")
                return self.stack[0]
            work = _WORK[code]
            if work is None:
                raise self.refused(f"instruction {bytes([code])!r}, which no checkpoint needs")
            work(self)
        raise self.refused("is cut off")

    def refused(self, what):
        return Refused(f"{self.where}: pickle, byte {self.at}: {what}")

    # ---- what the instructions are made of

    def take(self, count):
        start = self.at
        if count > len(self.data) - start:
            raise self.refused("is cut off")
        self.at = start + count
        return self.data[start : self.at]

    def number(self, form, size):
        return struct.unpack(form, self.take(size))[0]

    def push(self, value):
        self.left -= 1
        if self.left < 0:
            raise self.refused("holds more objects than are allowed")
        self.stack.append(value)

    def pop(self):
        if not self.stack or (self.marks and len(self.stack) <= self.marks[-1]):
            raise self.refused("takes an object that is not there")
        return self.stack.pop()

    def top(self):
        if not self.stack or (self.marks and len(self.stack) <= self.marks[-1]):
            raise self.refused("changes an object that is not there")
        return self.stack[-1]

    def pop_to_mark(self):
        if not self.marks:
            raise self.refused("has no start for a sequence")
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def text(self, size):
        return bytes(self.take(size)).decode("utf-8", "surrogatepass")

    def line(self):
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise self.refused("a name without an end")
        found = bytes(self.data[self.at : end]).decode("utf-8")
        self.at = end + 1
        return found

    def name(self, module, name):
        if type(module) is not str or type(name) is not str or not self.may_name(module, name):
            raise self.refused(f"names {module}.{name}, which this reader does not know; nothing was imported or called")
        self.push(Global(module, name))

    def make(self, arguments, of):
        if type(of) is not Global or type(arguments) is not tuple:
            raise self.refused("calls what is no name")
        # A member of an enum, as Python 3.11.0 to 3.11.3 writes it. Nothing is looked up here either.
        if of.full_name == "builtins.getattr" and [type(each) for each in arguments] != [Global, str]:
            raise self.refused("looks up what is no member of a name")
        self.push(Made(of, arguments))

    def set_items(self, target, items):
        if type(target) is not dict or len(items) % 2:
            raise self.refused("sets items of what is no dictionary")
        for at in range(0, len(items), 2):
            key = items[at]
            if not _may_be_key(key):
                raise self.refused("a dictionary key of a kind that is not allowed")
            target[key] = items[at + 1]

    def remember(self, index):
        if index != len(self.memo):
            # Python would make room for as many as it is told
            if index > len(self.memo):
                raise self.refused(f"memo entry {index} after {len(self.memo)}")
            self.memo[index] = self.top()
            return
        self.left -= 1
        if self.left < 0:
            raise self.refused("holds more objects than are allowed")
        self.memo.append(self.top())

    def recall(self, index):
        if index >= len(self.memo):
            raise self.refused(f"memo entry {index} is not there")
        self.push(self.memo[index])


def _may_be_key(key):
    if type(key) is tuple:
        return all(type(part) in (str, int, Made, Global) for part in key)
    return type(key) in (str, int, bool, type(None), bytes, Made, Global)


def _append(machine):
    item = machine.pop()
    _extend(machine, [item])


def _extend(machine, items):
    target = machine.top()
    if type(target) is not list:
        raise machine.refused("appends to what is no list")
    target.extend(items)


def _set_item(machine):
    value = machine.pop()
    key = machine.pop()
    machine.set_items(machine.top(), [key, value])


def _set_items(machine):
    items = machine.pop_to_mark()
    machine.set_items(machine.top(), items)


def _build(machine):
    state = machine.pop()
    target = machine.top()
    if type(target) is not Made or target.state is not None:
        raise machine.refused("sets the state of what has none")
    target.state = state


def _long(machine):
    size = machine.number("<B", 1)
    if size > _LONGEST_INTEGER:
        raise machine.refused(f"an integer of {size} bytes")
    machine.push(int.from_bytes(machine.take(size), "little", signed=True))


def _reduce(machine):
    arguments = machine.pop()
    machine.make(arguments, machine.pop())


def _stack_global(machine):
    name = machine.pop()
    machine.name(machine.pop(), name)


def _tuple_of(count):
    def work(machine):
        items = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(items)))

    return work


def _sized(form, size, make):
    return lambda machine: machine.push(make(machine, machine.number(form, size)))


def _text_of(machine, size):
    return machine.text(size)


def _bytes_of(machine, size):
    return bytes(machine.take(size))


def _protocol(machine):
    version = machine.number("<B", 1)
    if version > 5:
        raise machine.refused(f"protocol {version}")


def _mark(machine):
    machine.left -= 1
    if machine.left < 0:
        raise machine.refused("holds more objects than are allowed")
    machine.marks.append(len(machine.stack))


_WORK = [None] * 256
for _code, _work in {
    b"\x80": _protocol,
    b"\x95": lambda machine: machine.take(8),  # FRAME: for readers of streams
    b"(": _mark,
    b"0": lambda machine: machine.pop(),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"K": lambda machine: machine.push(machine.number("<B", 1)),
    b"M": lambda machine: machine.push(machine.number("<H", 2)),
    b"J": lambda machine: machine.push(machine.number("<i", 4)),
    b"\x8a": _long,
    b"G": lambda machine: machine.push(machine.number(">d", 8)),
    b"\x8c": _sized("<B", 1, _text_of),
    b"X": _sized("<I", 4, _text_of),
    b"\x8d": _sized("<Q", 8, _text_of),
    b"C": _sized("<B", 1, _bytes_of),
    b"B": _sized("<I", 4, _bytes_of),
    b"\x8e": _sized("<Q", 8, _bytes_of),
    b")": lambda machine: machine.push(()),
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"t": lambda machine: machine.push(tuple(machine.pop_to_mark())),
    b"]": lambda machine: machine.push([]),
    b"a": _append,
    b"e": lambda machine: _extend(machine, machine.pop_to_mark()),
    b"}": lambda machine: machine.push({}),
    b"s": _set_item,
    b"u": _set_items,
    b"c": lambda machine: machine.name(machine.line(), machine.line()),
    b"\x93": _stack_global,
    b"R": _reduce,
    b"\x81": _reduce,  # NEWOBJ
    b"b": _build,
    b"Q": lambda machine: machine.push(StoredElsewhere(machine.pop())),
    b"q": lambda machine: machine.remember(machine.number("<B", 1)),
    b"r": lambda machine: machine.remember(machine.number("<I", 4)),
    b"\x94": lambda machine: machine.remember(len(machine.memo)),
    b"h": lambda machine: machine.recall(machine.number("<B", 1)),
    b"j": lambda machine: machine.recall(machine.number("<I", 4)),
}.items():
    _WORK[_code[0]] = _work


def load(data, where, may_name, most_objects):
    """The object that the bytes hold, of dict, list, tuple, str, bytes, int, float, bool, None, Global, Made and
    StoredElsewhere.

    where     what the bytes are, for messages
    may_name  function of (module, name): whether the name may occur
    Raises Refused, and nothing else whatever the bytes are."""
    machine = _Machine(data, where, may_name, most_objects)
    try:
        return machine.run()
    except UnicodeDecodeError as error:
        raise machine.refused("a text that is no UTF-8") from error
