"""Before the program of docs/dlfw_inspect.md: TransformerEngine, of which there is a stand-in."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python/te_stand_in"))
