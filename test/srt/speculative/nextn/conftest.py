import sys
from pathlib import Path

TESTS = Path(__file__).parents[3]
# The variants of a checkpoint are shared with the tests of the worker, the files of a
# head with the tests that go upstream.
sys.path.insert(0, str(TESTS / "models"))
sys.path.insert(0, str(TESTS / "registered/unit/speculative/nextn"))
