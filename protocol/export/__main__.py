"""`python -m protocol.export`."""

import sys

from protocol.export.main import main

sys.exit(main())
