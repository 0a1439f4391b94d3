import sys
from pathlib import Path

# The variants of a checkpoint are shared with the tests of the worker.
sys.path.insert(0, str(Path(__file__).parents[3] / "models"))
