"""`python tools/oracle`: hold this tree against a wheel of an older revision, in both directions."""

import sys
from importlib import import_module
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.exit(import_module("oracle.compare").main(sys.argv[1:]))
