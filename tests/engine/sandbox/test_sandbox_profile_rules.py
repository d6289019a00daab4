"""Rules of permission profiles: compared with an evaluator that visits every folder of a path, and their effect in
plans.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.file_rules import FileRules, Pattern, Right, rules_of
from app_server.engine.sandbox.make_plan import make_plan
from app_server.engine.sandbox.plan import ProfileFacts, RootFacts, SandboxFacts, SandboxPlan
from app_server_protocol.policy import Access, PermissionProfile
from tests.support.profiles import VS_CODE, named, profile

NAMES = ("a", "b", "c")
PATHS = st.lists(st.sampled_from(NAMES), max_size=4).map(lambda parts: "/" + "/".join(parts))
RULES = st.dictionaries(PATHS, st.sampled_from(list(Access)), max_size=8)


def naive(rules: Mapping[str, Access], path: str) -> Right:
    """Evaluate the rules from the disk's root to the path, one folder after another."""
    right = Right.ABSENT
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts) + 1):
        match rules.get("/" + "/".join(parts[:depth])):
            case Access.DENY:
                right = Right.DENIED if depth else Right.ABSENT
            case Access.WRITE:
                right = Right.WRITE
            case Access.READ if right is not Right.DENIED:
                right = Right.READ
            case _:
                pass
    return right


def rules_from(given_rules: Mapping[str, Access]) -> FileRules:
    table = {path: str(access) for path, access in given_rules.items()}
    return rules_of(profile(table, extends=None), "/w", tmpdir=None)


@given(RULES, PATHS)
def test_the_longest_place_decides(given_rules: Mapping[str, Access], path: str) -> None:
    assert rules_from(given_rules).right(path) is naive(given_rules, path)


@given(RULES, PATHS)
def test_a_plan_gives_what_the_rules_give(given_rules: Mapping[str, Access], path: str) -> None:
    rules = rules_from(given_rules)
    plan = plan_of(rules)
    wanted = rules.right(path)
    if wanted is Right.WRITE and path == "/":  # the whole disk is no root
        return
    if given_rules.get("/") is Access.WRITE:
        return
    assert right_by(plan, path) is wanted or (wanted <= Right.DENIED and right_by(plan, path) <= Right.DENIED)


def plan_of(rules: FileRules) -> SandboxPlan:
    places = tuple(path for path, _ in rules.places)
    roots = tuple(RootFacts(path, path) for path, access in rules.places if access is Access.WRITE)
    facts = ProfileFacts(rules=rules, present=places, roots=roots)
    plan = make_plan(PermissionProfile(id="p"), SandboxFacts(home="/home-of-the-server", profile=facts))
    assert plan is not None
    return plan


def right_by(plan: SandboxPlan, path: str) -> Right:
    """Return the right that the mounts of a plan leave for a path: the innermost place decides."""
    shown = plan.view.visible is None or any(within(path, place) for place in plan.view.visible)
    steps = {
        **dict.fromkeys(plan.writable_roots, Right.WRITE),
        **dict.fromkeys(plan.protected, Right.READ),
        **dict.fromkeys(plan.view.hidden, Right.DENIED),
        **dict.fromkeys(plan.view.reopened, Right.WRITE),
    }
    innermost = max((place for place in steps if within(path, place)), key=len, default=None)
    if not shown:
        return Right.ABSENT
    return Right.READ if innermost is None else steps[innermost]


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@pytest.mark.parametrize(
    ("names", "path", "matches"),
    [
        ("*.env", "/w/a.env", True),
        ("*.env", "/w/sub/a.env", False),
        ("**/*.env", "/w/a.env", True),
        ("**/*.env", "/w/x/y/a.env", True),
        ("**/*.env", "/w/x/y/a.env/inside", True),
        ("**/*.env", "/w/x/a.envx", False),
        ("**/keys/**", "/w/x/keys/y", True),
        ("k?y", "/w/key", True),
        ("k?y", "/w/k/y", False),
        ("[ab].x", "/w/a.x", True),
        ("[!ab].x", "/w/a.x", False),
        ("[!ab].x", "/w/c.x", True),
        ("*.env", "/other/a.env", False),
        ("a.b*", "/w/aXb", False),
    ],
)
def test_patterns(names: str, path: str, *, matches: bool) -> None:
    assert Pattern("/w", names).matches(path) is matches


def test_at_one_place_deny_goes_before_write_and_write_before_read() -> None:
    one = profile({":slash_tmp": "write", "/tmp": "read", "/x": "deny", ":root": "read"}, extends=None)
    rules = rules_of(one, "/w", tmpdir="/x", real=lambda name, access: (name,))
    assert rules.right("/tmp/y") is Right.WRITE
    both = rules_of(profile({":tmpdir": "write", "/x": "deny"}, extends=None), "/w", tmpdir="/x")
    assert both.right("/x/y") is Right.DENIED


def test_the_profile_of_vs_code_does_not_subtract() -> None:
    rules = rules_of(named(VS_CODE, "vscode-workspace"), "/w", tmpdir=None)
    plan = plan_of(rules)
    assert plan.view.visible is not None
    assert {"/usr", "/etc", "/w", "/tmp"} <= set(plan.view.visible)
    assert (plan.writable_roots, plan.view.hidden, plan.view.subtracts) == (("/w",), (), False)
