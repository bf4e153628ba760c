#!/usr/bin/env python3
"""The content security policy of a report page names its own style sheet and script.

In: pages (default: the golden page). Out: one line per page whose policy is not what it should be,
with the hash that belongs into src/report/page_hashes.h; exit code 1 then. Must not happen here:
judging anything else of the page.
"""

import base64
import hashlib
import html.parser
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPECTED = ("default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
            "base-uri 'none'; form-action 'none'")


class Page(html.parser.HTMLParser):
    """Collects the policy, the text of style and script elements, and what a policy cannot hash."""

    def __init__(self):
        super().__init__()
        self.policy, self.open = None, None
        self.texts, self.unhashed = {"style": [], "script": []}, []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("http-equiv", "").lower() == "content-security-policy":
            self.policy = attributes.get("content")
        is_data = tag == "script" and attributes.get("type") == "application/json"
        if tag in self.texts and not is_data:
            self.open = tag
            self.texts[tag].append("")
        self.unhashed += [name for name in attributes if name == "style" or name.startswith("on")]

    def handle_data(self, data):
        if self.open:
            self.texts[self.open][-1] += data

    def handle_endtag(self, tag):
        if tag == self.open:
            self.open = None


def sha256(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def problems(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    for tag, texts in page.texts.items():
        if len(texts) != 1:
            yield f"{len(texts)} <{tag}> elements, expected 1"
    if page.unhashed:
        yield f"attributes that no policy should admit: {', '.join(sorted(set(page.unhashed)))}"
    hashes = {tag: sha256("".join(texts)) for tag, texts in page.texts.items()}
    if page.policy != EXPECTED.format(**hashes):
        yield (f"the policy is {page.policy!r}; expected kStyleHash {hashes['style']}, "
               f"kScriptHash {hashes['script']} (src/report/page_hashes.h)")


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:]] or [ROOT / "tests/golden/report.html"]
    found = [f"{path}: {problem}" for path in paths for problem in problems(path)]
    print("\n".join(found) if found else f"{len(paths)} pages: policies name their own hashes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
