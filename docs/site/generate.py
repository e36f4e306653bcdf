"""generate.py ROOT PAGES CONFIG: makes the site's pages, as Markdown, from README.md, docs/, examples/lessons and the
headers of ROOT. Links out of docs/ lead to the lesson, the reference or a page with the source. Writes CONFIG for
mkdocs, with the navigation."""
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from headers import read_header

here = Path(__file__).resolve().parent
root, pages, config = (Path(argument).resolve() for argument in sys.argv[1:4])
folders = ["core", "device", "tensor", "ops", "comm", "data", "nn", "optim", "parallel", "train"]
lexers = {".hpp": "cpp", ".cpp": "cpp", ".cuh": "cpp", ".cu": "cpp", ".py": "python", ".sh": "bash", ".sbatch": "bash",
          ".yaml": "yaml", ".json": "json", ".cmake": "cmake", ".txt": "cmake"}


def known_files():
    """Returns the files of the repository; without git, or if a repository around this folder ignores it, all files
    except built ones."""
    listed = subprocess.run("git ls-files --cached --others --exclude-standard", shell=True, cwd=root, text=True,
                            capture_output=True).stdout.split("\n")
    if "README.md" in listed:
        return {path for path in listed if (root / path).is_file()}
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in files if path.parts[0] not in ("build", ".git") and "__pycache__" not in path.parts}


known = known_files()
lessons = sorted({Path(path).stem for path in known
                  if re.fullmatch(r"examples/lessons/\d+_\w+\.cpp|docs/lessons/\d+_\w+\.md", path)},
                 key=lambda name: int(name.split("_")[0]))
made_here = {"docs/lessons/README.md"} | {f"docs/lessons/{name}.md" for name in lessons}  # whether they exist or not
wanted = []  # files that a page links to and that need a page of their own


def write(page, text):
    (pages / page).parent.mkdir(parents=True, exist_ok=True)
    (pages / page).write_text(text)


def fence(text, lexer="cpp", title=""):
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall("`{3,}", text)])
    return f'{ticks}{lexer}{title and f" title={json.dumps(title)}"}\n{text.rstrip()}\n{ticks}\n'


def page_of(path):
    """Returns the page of the site for a file or folder of the repository."""
    if path in ("", "."):
        return "index.md"
    if (root / path).is_dir():
        if path == "examples/lessons":
            return "lessons/index.md"
        if path.removeprefix("include/dhp/") in api_pages:
            return api_pages[path.removeprefix("include/dhp/")]
        readme = path + "/README.md"
        if (root / readme).exists():
            return page_of(readme)
        wanted.append(path)
        return f"source/{path}/index.md"
    if path == "README.md":
        return "index.md"
    if path == "docs/README.md":
        return "map.md"
    if path == "docs/site/playground/playground.cpp":
        return "playground.md"
    if path.startswith("docs/") and not path.startswith("docs/site/"):
        inside = path.removeprefix("docs/")
        if path.endswith(".md"):
            return inside.replace("README.md", "index.md")  # also the lessons' page, existing or not
        if path.startswith("docs/pictures/") and not path.endswith(".py"):
            return inside
    if Path(path).parent == Path("examples/lessons") and Path(path).stem in lessons and path.endswith(".cpp"):
        return f"lessons/{Path(path).stem}.md"
    if path.startswith("examples/lessons/solutions/") and Path(path).stem in lessons:
        return f"lessons/{Path(path).stem}.md#the-solutions"
    if path in api_anchors:
        return api_anchors[path]
    return source_page(path)


def source_page(path):
    wanted.append(path)
    shown = path.lstrip(".")  # MkDocs ignores names that begin with a dot
    return "source/" + (shown.replace("README.md", "index.md") if shown.endswith(".md") else shown + ".md")


def relative(page, target):
    place, _, anchor = target.partition("#")
    link = os.path.relpath(place, os.path.dirname(page) or ".")
    return link + ("#" + anchor if anchor else "")


def for_markdown(text):
    """Converts GitHub's Markdown to Python's: the text of a list's item is indented by four columns, and <details>
    becomes a block."""
    lines, width = [], 0
    for line in text.split("\n"):
        item = re.match(r"(?:\d+\.|[-*]) +(?=\S)", line)
        if item:
            width = len(item.group())
        elif line.strip() and not line.startswith(" "):
            width = 0
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        lines.append(line)

    def details(match):
        indent, summary, body = match.groups()
        body = re.sub(r"^(?=.)", "    ", body.strip("\n"), flags=re.M)
        return f'{indent}??? question "{summary.strip()}"\n\n{body}\n'
    return re.sub(r"^( *)<details>\s*<summary>(.*?)</summary>\n(.*?)^ *</details>", details, "\n".join(lines),
                  flags=re.M | re.S)


def with_links(text, path, page):
    """Returns the Markdown of the repository's file `path`, with the links that `page` needs."""
    def link(match):
        target, anchor = match.group(2), match.group(3) or ""
        at = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if at.startswith("..") or re.match(r"[a-z]+:", target) or not ((root / at).exists() or at in made_here):
            return match.group()
        found = page_of(at)
        # The text is a file's name; here it has a title.
        if re.fullmatch(r"\[[\w/]+\.md\]\(", match.group(1)) and target.endswith(".md"):
            title = title_of((root / at).read_text(), at) if (root / at).exists() else Path(at).stem
            return f"[{title}](" + relative(page, found) + anchor + match.group(4)
        if "#" in found:
            anchor = ""
        return match.group(1) + relative(page, found) + anchor + match.group(4)
    lines, inside = [], None
    for line in for_markdown(text).split("\n"):
        ticks = re.match(r"\s*(```+|~~~+)", line)
        if ticks:
            inside = None if inside == ticks.group(1) else inside or ticks.group(1)
        elif not inside:
            line = re.sub(r"(\[[\w/]+\.md\]\(|\]\()([^)#\s]+)(#[^)]*)?(\))", link, line)
            line = re.sub(r'((?:src|srcset|href)=")([^"#]+)(#[^"]*)?(")', link, line)
            line = re.sub(r"<(div|figure)(?=[ >])(?![^>]*markdown=)", r'<\1 markdown="1"', line)
        lines.append(line)
    return "\n".join(lines)


def title_of(text, otherwise):
    match = re.search(r"^# (.+)$", text, re.M)
    return match.group(1).replace("`", "") if match else otherwise


# --- the reference ---

api_pages = {}    # folder -> page
api_anchors = {}  # header -> page#anchor
api_types = {}    # name of a type -> page#anchor, for links in code


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def prose(text):
    """Returns a comment as Markdown: names become code, indented lines a block."""
    out, block = [], []
    for line in text.split("\n") + [""]:
        if line.startswith("   ") and not (out and out[-1].lstrip().startswith("- ")):
            block.append(line[3:])
            continue
        if block and line.strip():
            out += ["", fence("\n".join(block), "text"), ""]
            block = []
        parts = re.split(r"(`[^`]*`)", line.strip())
        for i, part in enumerate(parts):
            if i % 2 == 0:
                names = r"(?<![\w/])(?:[\w]+::)*[A-Za-z]\w*(?:\(\)|_\w+(?:\(\))?)|\b\w+::\w[\w:]*|\[[\w, .]+\]"
                pieces = re.split(f"({names})", part)
                marks = r"([_<\[\]\\|#]|\*(?!\w[^*]*\w\*)(?<!\w\*))"  # but *emphasis* stays
                parts[i] = "".join(f"`{piece}`" if k % 2 else re.sub(marks, r"\\\1", piece)
                                   for k, piece in enumerate(pieces))
        out.append("".join(parts))
    if block:
        out += ["", fence("\n".join(block), "text")]
    return "\n".join(out).strip() + "\n"


def headers_of(folder):
    """Returns the headers in this folder, without subfolders: those of the umbrella header first."""
    umbrella = root / f"include/dhp/{folder}.hpp"
    order = re.findall(r"#include <dhp/(.+)>", umbrella.read_text()) if umbrella.exists() else []
    paths = [f"include/dhp/{name}" for name in order if os.path.dirname(name) == folder]
    others = sorted(path for path in known if os.path.dirname(path) == f"include/dhp/{folder}" and
                    path.endswith((".hpp", ".cuh")) and path not in paths)
    return paths, others


def read_reference():
    """Returns (folder, [(header, public)]) of each folder with public names; fills the tables of links."""
    all_folders = sorted({os.path.dirname(path).removeprefix("include/dhp/") for path in known
                          if path.startswith("include/dhp/") and path.count("/") > 2})
    all_folders = [name for first in folders for name in all_folders if name == first or name.startswith(first + "/")]
    reference = []
    for folder in all_folders:
        umbrella, others = headers_of(folder)
        read = [(read_header(root / path), path, path in umbrella) for path in umbrella + others]
        read = [(header, path, public) for header, path, public in read if header.entities]
        if not read:
            continue
        page = api_pages[folder] = f"api/{folder.replace('/', '_')}.md"
        for header, path, _ in read:
            api_anchors[path] = f"{page}#{slug(Path(path).name)}"
            for entity in header.entities:
                if entity.kind not in ("function", "variable", "guide"):
                    api_types.setdefault(entity.name, f"{page}#{anchor_of(path, entity)}")
        reference.append((folder, read))
    return reference


def anchor_of(path, entity):
    return slug(f"{Path(path).stem} {entity.name.replace('==', 'equal')} {'guide' if entity.kind == 'guide' else ''}")


def write_reference(reference, described):
    index = []
    for folder, read in reference:
        page = api_pages[folder]
        said = described.get(folder, "")
        out = [f"# dhp/{folder}", "", said[:1].upper() + said[1:] + "." * bool(said), ""]
        for header, path, public in read:
            name = Path(path).name
            source = relative(page, source_page(path))
            alone = "" if public else " · by this name only; no folder's header brings it"
            out += [f"## {name} {{#{slug(name)}}}", "",
                    f'<p class="include" markdown="1">`#include <{path.removeprefix("include/")}>` · '
                    f"[source]({source}){alone}</p>", "", prose(header.head), ""]
            last = None
            for entity in header.entities:
                if entity.name != last:
                    kind = "" if entity.kind in ("function", "guide") else f' <small>{entity.kind}</small>'
                    name_ = re.sub(r"([_*<>])", r"\\\1", entity.name)
                    out += [f"### {name_}{kind} {{#{anchor_of(path, entity)} data-toc-label='{entity.name}'}}", ""]
                    index.append((entity.name, f"{page}#{anchor_of(path, entity)}", f"{folder}/{Path(path).stem}"))
                last = entity.name
                out += [prose(entity.doc), "", fence(entity.code), ""]
        write(page, "\n".join(out))
    index = sorted({name_: (name_, target, where) for name_, target, where in reversed(index)}.values(),
                   key=lambda entry: (entry[0].lower(), entry[0]))
    out = ["# The reference", "",
           "The public names of the headers, by folder. A folder includes its own headers and those above it.", "",
           "| folder | what lives there |", "|---|---|"]
    out += [f"| [{folder}]({relative('api/index.md', api_pages[folder])}) | "
            f"{described.get(folder) or names_of(read)} |" for folder, read in reference]
    out += ["", "## All names", ""]
    by_letter = {}
    for name, target, where in index:
        address = relative("api/index.html", target.replace(".md", ".html"))
        link = f'<a href="{address}" title="{where}">{html.escape(name)}</a>'
        by_letter.setdefault(name[0].upper(), []).append(link)
    for letter, links in sorted(by_letter.items()):
        out += [f'<p class="names"><b>{letter}</b> ' + " ".join(links) + "</p>"]
    write("api/index.md", "\n".join(out) + "\n")
    return len(index)


def names_of(read):
    return ", ".join(f"`{Path(path).stem}`" for _, path, _ in read)


# --- lessons ---

def lesson_head(name):
    return " ".join(read_header(root / f"examples/lessons/{name}.cpp").head.split())


def write_lessons():
    """Writes page, program and solution of each lesson; returns (name, title) of each."""
    made = []
    for name in lessons:
        page, program = f"lessons/{name}.md", f"examples/lessons/{name}.cpp"
        written = root / f"docs/lessons/{name}.md"
        number = name.split("_")[0]
        if written.exists():
            text = with_links(written.read_text(), f"docs/lessons/{name}.md", page)
        else:
            head = lesson_head(name)
            match = re.match(r"(?:Lesson \d+: )?(.*?)\.(?: (?=[A-Z*])(.*))?$", head)
            title, rest = (match.group(1), match.group(2) or "") if match else (name.replace("_", " "), head)
            text = f"# Lesson {number}: {title}\n\n{prose(rest)}"
        title = re.sub(r" *\(.*?\)|^Lesson \d+[:.]? *|^\d+[:.]? +", "", title_of(text, name))
        made.append((name, f"{number}. {title[0].upper()}{title[1:]}"))
        if (root / program).exists():
            source = relative(page, source_page(program))
            text += f"\n## The program\n\n[`{program}`]({source}), built as `lesson_{name}`.\n\n"
            text += fence((root / program).read_text(), "cpp")
        solution = f"examples/lessons/solutions/{name}.cpp"
        if (root / solution).exists():
            body = fence((root / solution).read_text(), "cpp").replace("\n", "\n    ").rstrip(" ")
            text += f'\n## The solutions\n\n??? success "solutions/{name}.cpp"\n\n    {body}\n'
        write(page, text)
    if not (root / "docs/lessons/README.md").exists():
        rows = "".join(f"| [{title}]({name}.md) | {summary(name)} |\n" for name, title in made)
        write("lessons/index.md", "# Lessons\n\nPrograms of one screen or two, one idea each. They run on a laptop: "
              "ranks are threads.\n\n| lesson | |\n|---|---|\n" + rows)
    return made


def summary(name):
    sentences = re.split(r"(?<=\.) (?=[A-Z*])", lesson_head(name))
    return prose(" ".join(sentences[1:2])).strip()


# --- the other pages ---

def write_pages():
    for path in sorted(known):
        if path.startswith("docs/pictures/") and not path.endswith(".py"):
            (pages / "pictures").mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, pages / "pictures")
        inside = path.removeprefix("docs/")
        if path.startswith("docs/") and path.endswith(".md") and not inside.startswith("site/"):
            page = page_of(path)
            if (pages / page).exists():
                continue  # a lesson
            write(page, with_links((root / path).read_text(), path, page))


def timeline(schedule, page):
    """Returns a picture of a schedule's stages, from the lines that dhp drew on a page."""
    drawn = re.search(rf"^{schedule}\n((?:stage \d+ \| .*\n)+)", (root / page).read_text(), re.M)
    lines = re.findall(r"\| (.*?) *\| idle", drawn.group(1))
    kinds = {"F": "forward", "B": "backward", "W": "weight"}
    columns = max(len(line) for line in lines) / 3
    width, height, row = 14, 15, 19
    size = f"{round(columns + 0.5) * width} {len(lines) * row}"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
           f'aria-label="{len(lines)} pipeline stages, schedule {schedule}">']
    for s, line in enumerate(lines):
        for action in re.finditer(r"([FBW])(\d+)(-*)", line):
            slots = max(1, round((len(action.group()) + 1) / 3))
            out.append(f'<rect class="{kinds[action.group(1)]}" x="{action.start() / 3 * width:.1f}" y="{s * row + 1}" '
                       f'width="{slots * width - 1.5}" height="{height}" rx="2.5"/>')
    return "".join(out) + "</svg>"


def write_landing():
    text = with_links((root / "README.md").read_text(), "README.md", "index.md")
    head, _, rest = text.partition("\n## Where to begin\n")
    intro = head.partition("\n")[2].strip()
    table, _, rest = rest.strip().partition("\n\n")
    cards = []
    for row in table.split("\n")[2:]:
        wish, begin = [cell.strip() for cell in row.strip("|").split("|", 1)]
        cards.append(f"-   **{wish[0].upper()}{wish[1:]}**\n\n    {begin.rstrip('| ').strip()}\n")
    write("index.md", "---\nhide: [navigation, toc]\ntitle: dhp\n---\n"
          + (here / "landing.html").read_text().replace("INTRO", intro)
          .replace("TIMELINE", timeline("zero-bubble", "docs/lessons/9_schedules.md"))
          + '\n<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n\n" + rest)


def write_sources():
    done = set()
    while wanted:
        path = wanted.pop()
        if path in done:
            continue
        done.add(path)
        front = "---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n"
        if (root / path).is_dir():
            page = f"source/{path}/index.md"
            entries = sorted({name[len(path) + 1:].split("/")[0] for name in known if name.startswith(path + "/")})
            text = front + f"# {path}\n\n" + "".join(
                f"- [{name}]({relative(page, page_of(f'{path}/{name}'))})\n" for name in entries)
        elif path.endswith(".md"):
            page = source_page(path)
            text = front.replace("search:\n  exclude: true\n", "") + with_links((root / path).read_text(), path, page)
        else:
            page = source_page(path)
            lexer = "cmake" if path.endswith("CMakeLists.txt") else lexers.get(Path(path).suffix, "text")
            text = front + f"# {Path(path).name}\n\n`{path}`\n\n" + fence((root / path).read_text(), lexer)
        write(page, text)
    return len(done)


def tables_of_the_map():
    """Returns {heading: [page]} of the tables in docs/README.md, and its descriptions of the folders of include/dhp."""
    text = (root / "docs/README.md").read_text()
    tables, described = {}, {}
    heading = None
    for line in text.split("\n"):
        match = re.match(r"\| to (.+?) \| \|$", line)
        if match:
            heading = match.group(1)
            tables[heading] = []
        elif heading and line.startswith("| ["):
            tables[heading] += re.findall(r"\]\(([\w/]+\.md)\)", line.split(" | ")[0])
        elif not line.startswith("|"):
            heading = None
        match = re.match(r"\| `(\w+)` \| (.+) \|$", line)
        if match:
            described[match.group(1)] = match.group(2)
    return tables, described


def main():
    shutil.rmtree(pages, ignore_errors=True)
    reference = read_reference()
    tables, described = tables_of_the_map()
    names = write_reference(reference, described)
    made = write_lessons()
    write_pages()
    write_landing()
    source_page("docs/site/playground/step_estimate.hpp")  # which the playground names
    sources = write_sources()
    shutil.copytree(here / "assets", pages / "assets")
    write("playground.md", (here / "playground/playground.html").read_text())
    shutil.copy(here / "playground/playground.js", pages / "assets")

    def entries(wish):
        listed = [page for heading, of_table in tables.items() if wish in heading for page in of_table]
        return [{title_of((pages / page).read_text(), page): page} for page in listed if (pages / page).exists()]
    listed = {page for of_table in tables.values() for page in of_table}
    others = [page.name for page in sorted(pages.glob("*.md"))
              if page.name not in listed | {"index.md", "map.md", "playground.md"}]
    navigation = [
        {"dhp": "index.md"},
        {"Learn": [{"Lessons": ["lessons/index.md"] + [{title: f"lessons/{name}.md"} for name, title in made]},
                   *entries("learn"),
                   *[{title_of((pages / page).read_text(), page): page} for page in others]]},
        {"Playground": "playground.md"},
        {"Use in your code": entries("use dhp")},
        {"Run the trainers": entries("trainers")},
        {"Reference": ["api/index.md", *[{folder: api_pages[folder]} for folder, _ in reference],
                       {"Map of the pages": "map.md"}]},
    ]
    (config.parent / "types.json").write_text(json.dumps(api_types))
    config.write_text(json.dumps({"INHERIT": str(here / "mkdocs.yml"), "docs_dir": str(pages),
                                  "hooks": [str(here / "hooks.py")], "nav": navigation}))
    print(f"{len(made)} lessons, {names} names of {len(api_anchors)} headers, {sources} sources")


if __name__ == "__main__":
    main()
