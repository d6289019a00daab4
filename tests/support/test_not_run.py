"""The report of tests that were skipped: a line for each missing thing at the end of a run."""

from tests.support.not_run import not_run


def test_each_thing_that_was_lacking_has_a_line_with_how_to_run_it() -> None:
    emacs, reference = "Skipped: there is no emacs", "Skipped: REFERENCE_CODEX names no program"
    assert list(not_run([reference, emacs, reference, "Skipped: no moon"])) == [
        "2 of conversations from codex and back: REFERENCE_CODEX=/path/to/codex-0.58 make test",
        "1 of what needs emacs: install emacs",
        "1 of others: Skipped: no moon",
    ]
