"""``python -m refold``: the command line without its script."""

import sys

from refold.faces.cli import main

sys.exit(main())
