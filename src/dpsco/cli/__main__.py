"""``python -m dpsco.cli``."""

import sys

from dpsco.cli import main

sys.exit(main())
