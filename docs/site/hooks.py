"""Links the names of dhp's types in C++ code to the reference, and avoids a script that pages load from the network."""
import json
import os
import re
from pathlib import Path

types = {}


def on_config(config):
    types.update(json.loads(Path(config.config_file_path).with_name("types.json").read_text()))
    return config


def on_page_content(html, page, config, files):
    here = os.path.dirname(page.url) or "."

    def link(match):
        place, anchor = types[match.group(2)].split("#")
        target = place.replace(".md", ".html")
        address = f"#{anchor}" if target == page.url else f"{os.path.relpath(target, here)}#{anchor}"
        return f'{match.group(1)}<a href="{address}">{match.group(2)}</a></span>'
    if not types:
        return html
    names = re.compile(r'(<span class="n[fn]?">)(' + "|".join(sorted(types, key=len, reverse=True)) + r")</span>")
    return re.sub(r'<div class="language-cpp .*?</div>', lambda block: names.sub(link, block.group()), html, flags=re.S)


def on_post_page(output, page, config):
    """The theme loads a script for searching from the network; this replaces it by the site's own copy."""
    own = os.path.relpath("assets/file_worker.js", os.path.dirname(page.url) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", own)
