"""Opens an address in the user's browser."""

from __future__ import annotations

import webbrowser

from app_server.core.threads import run_in_thread


async def open_browser(url: str) -> bool:
    """False where there is none."""
    return await run_in_thread(webbrowser.open, url, abandon_on_cancel=True)
