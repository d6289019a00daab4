"""Telemetry: events about conversations, sent by OpenTelemetry if the user enables it."""
