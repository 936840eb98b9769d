"""Renders an OpenAPI document as one HTML page that needs no network, no script and no second file.

Owns the look of /docs.

Invariants: whatever the document says is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

Document = dict[str, Any]

_METHODS = ("get", "put", "post", "delete")
_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1rem 1.5rem 4rem}
h1{margin-bottom:0}h2{border-bottom:1px solid var(--line);margin-top:2.5rem}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--soft);border-radius:6px;overflow:auto;padding:.7rem}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}summary b{display:inline-block;font:600 12px ui-monospace,monospace;width:4.5rem}
summary span{float:right;opacity:.75}table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}
h4{margin:1rem 0 .2rem}nav a{margin-right:1rem}
"""


def render(document: Document, openapi_url: str) -> bytes:
    """Renders the page.

    Args:
        document: An OpenAPI 3.1 document.
        openapi_url: Where the document itself is served.
    """
    info = document["info"]
    tags = _by_tag(document)
    licence = info.get("license", {}).get("name", "")
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('summary', ''))} {escape(licence)}. ",
        f"For programs: <a href='{escape(openapi_url)}'>{escape(openapi_url)}</a></p><nav>",
        *(f"<a href='#{escape(tag)}'>{escape(tag)}</a>" for tag in tags),
        "<a href='#schemas'>schemas</a></nav>",
    ]
    for tag, operations in tags.items():
        parts.append(f"<h2 id='{escape(tag)}'>{escape(tag)}</h2>")
        parts += [_operation(method, path, operation) for method, path, operation in operations]
    parts.append("<h2 id=schemas>schemas</h2>")
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        parts.append(
            f"<details id='schema-{escape(name)}'><summary><code>{escape(name)}</code></summary>"
            f"{_json(schema)}</details>"
        )
    return "\n".join(parts).encode()


def _by_tag(document: Document) -> dict[str, list[tuple[str, str, Document]]]:
    found: dict[str, list[tuple[str, str, Document]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tag = (item[method].get("tags") or ["other"])[0]
                found.setdefault(tag, []).append((method, path, item[method]))
    return found


def _operation(method: str, path: str, operation: Document) -> str:
    name = operation["operationId"]
    return "".join(
        [
            f"<details id='{escape(name)}'><summary><b>{method.upper()}</b><code>{escape(path)}</code>",
            f"<span>{escape(operation.get('summary', ''))}</span></summary>",
            f"<p>{escape(operation.get('description', ''))}</p><p>Operation <code>{escape(name)}</code></p>",
            _parameters(operation.get("parameters", [])),
            *_body(operation.get("requestBody", {}).get("content", {})),
            *_answers(operation["responses"]),
            "</details>",
        ]
    )


def _parameters(parameters: list[Document]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code>{' *' if p.get('required') else ''}<td>{escape(p['in'])}"
        f"<td>{escape(p.get('description', ''))}<td><code>{_shape(p.get('schema', {}))}</code>"
        for p in parameters
    )
    return f"<h4>Parameters</h4><table><tr><th>name<th>in<th>meaning<th>form{rows}</table>"


def _body(content: Document) -> Iterator[str]:
    for media, entry in content.items():
        yield f"<h4>Body, {escape(media)}</h4><p><code>{_shape(entry.get('schema', {}))}</code></p>"
        yield from _examples(entry)


def _answers(responses: Document) -> Iterator[str]:
    for status, answer in responses.items():
        shown = "Problems" if status == "default" else f"Answer {status}"
        yield f"<h4>{escape(shown)}</h4><p>{escape(answer.get('description', ''))}</p>"
        for media, entry in answer.get("content", {}).items():
            yield f"<p>{escape(media)}: <code>{_shape(entry.get('schema', {}))}</code></p>"
            yield from _examples(entry)


def _examples(entry: Document) -> Iterator[str]:
    for example in entry.get("examples", {}).values():
        value = example["value"]
        yield f"<pre>{escape(value)}</pre>" if isinstance(value, str) else _json(value)


def _shape(schema: Any) -> str:
    """Writes a schema in a line, with links to the named ones."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    for word, joint in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        if word in schema:
            return joint.join(_shape(inner) for inner in schema[word])
    plain = {name: value for name, value in schema.items() if name not in ("description", "title")}
    return escape(json.dumps(plain, ensure_ascii=False))


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
