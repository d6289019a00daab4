"""The program that tests start as a process, and the Python interpreter of its installation.

Both belong to the installed copy (`tests.support.installed`), which is updated when this module is imported.
"""

from tests.support.installed import PREFIX, bring_up_to_date

bring_up_to_date()

BIN = PREFIX / "bin"
PYTHON = str(BIN / "python")
SCRIPT = str(BIN / "app-server")
