"""Whether a block of a page is part of the file that it says it is of. No side effects."""


def _without_indent(lines):
    lines = [line.rstrip() for line in lines]
    depths = [len(line) - len(line.lstrip()) for line in lines if line]
    return [line[min(depths, default=0) :] for line in lines]


def _find(piece, lines, start):
    """Where the lines of the piece stand one after the other, under one indent; None: nowhere."""
    wanted = _without_indent(piece)
    for at in range(start, len(lines) - len(wanted) + 1):
        if _without_indent(lines[at : at + len(wanted)]) == wanted:
            return at
    return None


def pieces_of(lines):
    """The parts between lines `...`, which stand for any lines. Empty lines at their ends do not count."""
    pieces = [[]]
    for line in lines:
        if line.strip() == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    for piece in pieces:
        while piece and not piece[0].strip():
            del piece[0]
        while piece and not piece[-1].strip():
            del piece[-1]
    return [piece for piece in pieces if piece]


def missing_piece(shown, source):
    """The first piece of the block that the file does not have where it should: None when it has all, in
    this order."""
    start = 0
    for piece in pieces_of(shown):
        found = _find(piece, source, start)
        if found is None:
            return piece
        start = found + len(piece)
    return None
