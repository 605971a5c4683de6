"""The pages say what the code can say: each finding and each warning has its paragraph, each link its target."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "goodput_plugins"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLUG = re.compile(r"[a-z]+(-[a-z]+)*")
Node = TypeVar("Node", bound=ast.AST)


def nodes(kind: type[Node]) -> Iterator[Node]:
    """Every node of that kind in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kind))


def calls(*functions: str) -> Iterator[ast.Call]:
    """Every call of a function of such a name, with arguments."""
    for call in nodes(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in functions and call.args:
            yield call


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def finding_ids() -> set[str]:
    """The ids of ``Finding("id", ...)`` and of a reader's ``note("id", ...)`` in the package."""
    found = {call.args[0].value for call in calls("Finding", "note") if is_text(call.args[0])}
    return {slug for slug in found if SLUG.fullmatch(slug)}


def messages(*functions: str) -> dict[str, list[str]]:
    """What is handed to these functions: where it begins, and its stretches of words that are always the same."""
    found = {}
    for call in calls(*functions):
        message = call.args[0]
        parts = message.values if isinstance(message, ast.JoinedStr) else [message]
        stretches = [part.value.strip(" .:;()") for part in parts if is_text(part)]
        if any(telling := [stretch for stretch in stretches if stretch.count(" ") >= 2]):
            found[telling[0]] = telling
    return found


def sections(text: str, level: str) -> dict[str, str]:
    """The headings of a level and what stands below each."""
    parts = re.split(rf"^{level} (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


CHAPTERS = sections((ROOT / "docs" / "messages.md").read_text(), "##")
FINDINGS = finding_ids()
WARNINGS = messages("say")
ERRORS = messages("UnusableData", "PluginUnavailable")


def test_there_are_findings_and_warnings_to_look_for() -> None:
    assert {"wasted-progress", "torn-lines", "foreign-copies"} <= FINDINGS
    assert len(WARNINGS) > 5
    assert len(ERRORS) > 5


@pytest.mark.parametrize("slug", sorted(FINDINGS))
def test_each_finding_has_its_paragraph(slug: str) -> None:
    assert slug in sections(CHAPTERS["Findings"], "###")


@pytest.mark.parametrize("slug", sorted(sections(CHAPTERS["Findings"], "###")))
def test_each_paragraph_belongs_to_a_finding_that_exists(slug: str) -> None:
    assert slug in FINDINGS


@pytest.mark.parametrize("message", WARNINGS)
def test_each_warning_has_its_paragraph(message: str) -> None:
    assert any(stretch in CHAPTERS["Warnings"] for stretch in WARNINGS[message])


@pytest.mark.parametrize("message", ERRORS)
def test_each_error_has_its_line(message: str) -> None:
    assert any(stretch in CHAPTERS["Errors"] for stretch in ERRORS[message])


@pytest.mark.parametrize("chapter", ["Findings", "Warnings"])
def test_each_paragraph_says_what_happened_what_it_means_and_what_to_do(chapter: str) -> None:
    for heading, text in sections(CHAPTERS[chapter], "###").items():
        asked = re.findall(r"^\*\*(What .+?)\.\*\*", text, flags=re.M)
        assert asked == ["What happened", "What it means", "What to do"], heading


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_to_a_page_of_ours_has_its_target(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", there.read_text(), flags=re.M)
            assert heading in {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}
