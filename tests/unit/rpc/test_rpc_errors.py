"""The errors that handlers raise: their codes and their machine-readable data."""

from app_server.rpc.errors import RpcError, internal_error, invalid_request, not_found, overloaded


def test_an_error_has_a_code_and_a_kind() -> None:
    assert invalid_request("m") == RpcError(-32600, "m", {"kind": "invalid_request"})
    assert invalid_request("m", "k") == RpcError(-32600, "m", {"kind": "k"})
    assert invalid_request("m", "k", "f") == RpcError(-32600, "m", {"kind": "k", "field": "f"})
    assert internal_error("m") == RpcError(-32603, "m", {"kind": "internal"})
    assert internal_error("m", "k") == RpcError(-32603, "m", {"kind": "k"})
    assert overloaded("m") == RpcError(-32001, "m", {"kind": "overloaded", "retryable": True})


def test_an_error_names_what_was_not_found() -> None:
    error = not_found("open file", "x")
    assert error == RpcError(-32600, "open file not found: x", {"kind": "open_file_not_found"})
