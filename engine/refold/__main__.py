"""``python -m refold``: the command line without its script."""

import sys

from refold.cli import main

sys.exit(main())
