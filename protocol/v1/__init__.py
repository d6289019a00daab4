"""The conversation API: parameters and results, by resource."""
