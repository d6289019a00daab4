"""The order rules of the protocols, one message at a time: for the inspector, and for every scenario of the tests."""
