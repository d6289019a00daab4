"""`python -m app_server_protocol.export`."""

import sys

from app_server_protocol.export.main import main

sys.exit(main())
