"""``python -m dpsco.cli`` is ``dpsco``."""

import sys

from dpsco.cli import main

sys.exit(main())
