"""check_links.py SITE: checks that the links, anchors, pictures and scripts of the built pages exist, and that no page
loads anything from the network."""
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

site = Path(sys.argv[1]).resolve()


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.targets, self.loads = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for name in ("id", "name"):
            if values.get(name):
                self.anchors.add(values[name])
        for name in ("href", "src", "data"):
            if values.get(name) is not None and not (tag == "link" and values.get("rel") == "canonical"):
                self.targets.append(values[name])
                if tag != "a":
                    self.loads.append(values[name])


pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
wrong, links = [], 0
for path, page in pages.items():
    if path.name == "404.html":
        continue  # its links begin at the server's root
    for target in page.loads:
        if target.startswith(("http:", "https:", "//")):
            wrong.append(f"{path.relative_to(site)} loads {target}")
    for target in page.targets:
        parts = urlsplit(target)
        if parts.scheme or target.startswith("//"):
            continue
        links += 1
        found = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
        if found.is_dir():
            found = found / "index.html"
        if not found.exists() or site not in found.parents:
            wrong.append(f"{path.relative_to(site)}: there is no {target}")
        elif parts.fragment and found in pages and unquote(parts.fragment) not in pages[found].anchors:
            wrong.append(f"{path.relative_to(site)}: there is no anchor {target}")
print(*sorted(set(wrong)), sep="\n", end="\n" if wrong else "")
print(f"{len(pages)} pages, {links} links")
sys.exit(1 if wrong or not links else 0)
