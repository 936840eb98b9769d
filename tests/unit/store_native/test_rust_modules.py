"""The store's Rust modules import one way.

Contract: no circle among the top-level modules of store_native/src; only the binding may know Python.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "store_native" / "src"


def _imports() -> dict[str, set[str]]:
    imports: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.rs"):
        module = path.relative_to(SOURCES).parts[0].removesuffix(".rs")
        code = re.sub(r"//.*", "", path.read_text().split("#[cfg(test)]")[0])
        found = set(re.findall(r"\bcrate::(\w+)", code))
        imports.setdefault(module, set()).update(found - {module})
    del imports["lib"]
    return imports


def _circle(imports: dict[str, set[str]], trail: tuple[str, ...], whole: set[str]) -> tuple[str, ...] | None:
    """Returns a circle that is reached over ``trail``; ``whole`` are modules that reach none."""
    *before, last = trail
    if last in before:
        return trail[before.index(last) :]
    for further in sorted(imports.get(last, set()) - whole):
        if circle := _circle(imports, (*trail, further), whole):
            return circle
    whole.add(last)
    return None


def _any_circle(imports: dict[str, set[str]]) -> tuple[str, ...] | None:
    whole: set[str] = set()
    found = (_circle(imports, (module,), whole) for module in sorted(imports))
    return next((circle for circle in found if circle), None)


def test_a_circle_is_found() -> None:
    assert _any_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ("b", "c", "b")
    assert _any_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_no_module_imports_itself_over_others() -> None:
    imports = _imports()
    assert {"append", "flush", "dispatch", "schedule", "maintenance", "wire"} <= imports.keys()
    assert _any_circle(imports) is None


def test_only_the_binding_knows_python_and_the_wire() -> None:
    imports = _imports()
    assert not any("py" in found for module, found in imports.items() if module != "py")
    over_the_wire = {module for module, found in imports.items() if "wire" in found}
    assert over_the_wire == {"py"}
