"""What the user wants to be measured: events about conversations, sent by OpenTelemetry where it is asked for."""
