import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.skills.front_matter import NoFrontMatter, front_matter, one_line


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("description: plain words", "plain words"),
        ("description: with a colon: inside", "with a colon: inside"),
        ("description: words # a comment", "words"),
        ("description: C# and F#", "C# and F#"),
        ("description: 'it''s quoted' # why", "it's quoted"),
        ('description: "a \\"quote\\" and \\u00e9"', 'a "quote" and é'),
        ("description: |\n  two\n  lines\nother: x", "two\nlines"),
        ("description: >-\n  folded\n  lines", "folded lines"),
        ("description: begins\n  and goes on", "begins and goes on"),
        ("description:\n  below\n  its key", "below its key"),
        ("# a comment\n\ndescription: after it", "after it"),
        ("description: first\ndescription: last", "last"),
    ],
)
def test_the_forms_in_which_skills_write_their_description(written: str, read: str) -> None:
    assert front_matter(f"---\n{written}\n---\nbody")["description"] == read


def test_a_level_below_a_key_has_its_keys_too() -> None:
    text = "---\nname: a\nmetadata:\n  short-description: brief\n  deeper:\n    key: x\nallowed-tools: [Bash]\n---\n"
    assert front_matter(text) == {"name": "a", "metadata.short-description": "brief"}


@pytest.mark.parametrize("value", ["[a, b]", "{a: b}", "&anchor x", "*anchor", "!tag x", ""])
def test_what_is_no_text_is_left_out(value: str) -> None:
    assert "name" not in front_matter(f"---\nname: {value}\ndescription: d\n---\n")


@pytest.mark.parametrize("text", ["", "no settings", "---\nname: a\n", "----\nname: a\n---\n", " ---\n---\n"])
def test_text_without_settings_is_refused(text: str) -> None:
    with pytest.raises(NoFrontMatter, match="missing YAML frontmatter"):
        front_matter(text)


@given(st.text(alphabet="-ab:|>'\"\\#[{ \t\n\r\u2028", max_size=200))
def test_whatever_a_file_holds_it_is_read_as_texts(inner: str) -> None:
    try:
        found = front_matter(f"---\n{inner}\n---\n")
    except NoFrontMatter:
        return
    assert all(isinstance(value, str) for pair in found.items() for value in pair)


@given(st.text())
def test_one_line_is_one_line_that_can_be_shown(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line == " ".join(line.split())
