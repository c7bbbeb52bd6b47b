"""The error of files that are not what they say they are."""


class Refused(ValueError):
    """A file is damaged, hostile or of a kind that is not read; the text says which file, what was found in it and
    what is allowed."""
