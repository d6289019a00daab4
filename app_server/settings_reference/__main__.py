import sys

from app_server.settings_reference.command import main

sys.exit(main())
