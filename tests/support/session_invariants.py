"""What holds for every connection that speaks the Agent Client Protocol, independent of the scenario."""

import json

from app_server.inspector.rules.order import (
    RPC_RULES_OF_THE_END,
    OrderChecker,
    Requests,
    rpc_01_an_answer_has_one_request,
    rpc_03_an_answer_is_a_result_or_an_error,
)
from app_server.inspector.rules.session_rules import SESSION_RULES
from tests.support.client import Client

RULES = (rpc_01_an_answer_has_one_request, rpc_03_an_answer_is_a_result_or_an_error, *SESSION_RULES)


def violated_session_invariants(client: Client) -> list[str]:
    """By the server; what the client sent may be anything."""
    broken = [f"a line of stdout is no message: {line[:100]!r}" for line in client.garbage]
    checker, requests = OrderChecker(RULES, RPC_RULES_OF_THE_END), Requests()
    for entry in client.log:
        if isinstance(entry.message, dict):
            found = checker.see(requests.match(entry.sent, entry.message))
            said = json.dumps(entry.message)[:300]
            broken += [f"{rule}: {problem}: {said}" for rule, problem in found if not entry.sent]
    if not client.left_early:
        broken += [f"{rule}: {problem}" for rule, problem in checker.end()]
    return broken
