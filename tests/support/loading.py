"""Modules that a process has imported."""

import ast
import subprocess
import sys

START = """
from app_server.engine.support import lazy_imports
lazy_imports.install()
"""

LOADED = """
import sys
for name in {named!r}:
    lazy_imports.load(sys.modules[name])
print(*(name for name, module in list(sys.modules.items()) if type(module) is not lazy_imports.LazyModule))
"""


def modules_loaded_by(code: str) -> set[str]:
    """Return the modules that a new process has executed after it ran this code, with lazy imports as the product has
    them. Modules that the code imports by `import` are loaded. The code must print nothing.
    """
    imports = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import))
    named = [alias.name for node in imports for alias in node.names]
    command = [sys.executable, "-c", f"{START}{code}{LOADED.format(named=named)}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())
