"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast a machine is, and what else it has to do, is nothing that a test may fail on.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
