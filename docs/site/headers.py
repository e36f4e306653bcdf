"""Reads the public names of a C++ header of dhp: the comment at its head, and each declaration in namespace dhp with
its `///` comment. Leaves out function bodies and private members."""
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Entity:
    kind: str  # class, struct, enum, union, concept, using, function, variable, guide, namespace
    name: str
    doc: str  # the text of the `///` lines above it
    code: str  # without bodies and private members; public members have their comments


@dataclass
class Header:
    path: Path
    head: str
    entities: list = field(default_factory=list)


def mask(text):
    """Returns the text with spaces in place of comments, literals and preprocessor lines."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    literal = r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    return re.sub(r"//[^\n]*|/\*(?:.|\n)*?\*/|^[ \t]*#(?:\\\n|[^\n])*|" + literal, blank, text, flags=re.M)


CLOSES = {"(": ")", "{": "}", "[": "]"}


def closing(code, at):
    """Returns the index after the bracket that closes the bracket at `at`."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "({[":
            depth += 1
        elif code[i] in ")}]":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(code)


def behind_template(code, at, end):
    """Returns the index after `template <...>` clauses and attributes."""
    while True:
        start = re.compile(r"\s*").match(code, at, end).end()
        if code.startswith("[[", start):
            at = closing(code, start)
            continue
        match = re.compile(r"template\s*<").match(code, start, end)
        if not match:
            return start
        depth, i = 1, match.end()
        while depth and i < end:
            if code[i] in "({[":
                i = closing(code, i)
                continue
            if code[i] == "<":
                depth += 1
            elif code[i] == ">" and code[i - 1] not in "-=":
                depth -= 1
            i += 1
        at = i


def ends_in_requires(code):
    """Returns whether the code ends before a requires-expression's braces: with `requires` or `requires (...)`."""
    match = re.search(r"\brequires\s*(?=\()(?!.*\brequires\b)", code, flags=re.S)
    return re.search(r"\brequires$", code) or (match and closing(code, match.end()) == len(code))


def behind_constraint(code, at, end):
    """Returns the index of the type that a `requires` clause constrains, or `at`."""
    constrained = re.compile(r"requires\b[^{};]*?(?=\b(class|struct)\s+\w+)").match(code, at, end)
    return constrained.end() if constrained else at


def find_end(code, at, end):
    """Returns for the declaration at `at`: (kind of its end, start of its body or None, index after it)."""
    start = behind_constraint(code, behind_template(code, at, end), end)
    is_type = re.compile(r"(class|struct|union|enum|namespace|inline namespace)\b").match(code, start, end)
    is_concept = code.startswith("concept", start)
    called = assigned = initializers = False
    i = start
    while i < end:
        char = code[i]
        if char == ";":
            return ("end", None, i + 1)
        if char in "([":
            before = code[start:i].rstrip()
            if char == "(" and not re.search(r"\b(requires|decltype|alignas|noexcept|explicit)$", before):
                called = True
            i = closing(code, i)
            continue
        if char == "=" and not assigned and not re.search(r"operator\s*[=!<>+\-*/]*$", code[start:i]):
            assigned = True
        if char == ":" and called and not assigned and not initializers:
            if code[i + 1] != ":" and code[i - 1] != ":" and code[start:i].rstrip()[-1:] in ")tea&":
                initializers = i
        if char == "{":
            before = code[start:i].rstrip()
            body_end = closing(code, i)
            requires = ends_in_requires(before)
            if is_concept or requires or (assigned and not is_type):
                i = body_end
                continue
            if is_type and not called:
                semicolon = re.compile(r"\s*;").match(code, body_end, end)
                return ("type", i, semicolon.end() if semicolon else body_end)
            if initializers and re.search(r"[\w>]$", before):
                i = body_end
                continue
            if called:
                return ("function", initializers or i, body_end)
            i = body_end
            continue
        i += 1
    return ("end", None, end)


def name_of(code):
    """Returns (kind, name) of a declaration without its template clauses and attributes."""
    match = re.match(r"(class|struct|union|enum)\b(?:\s+(?:class|struct))?(?:\s+\[\[.*?\]\]|\s+alignas\(.*?\))*"
                     r"\s+([\w:]+)(<)?", code)
    if match:
        return match.group(1), match.group(2) + ("<" if match.group(3) else "")
    match = re.match(r"concept\s+(\w+)|(?:__extension__ )?using\s+(\w+)\s*=", code)
    if match:
        return ("concept", match.group(1)) if match.group(1) else ("using", match.group(2))
    flat, i = "", 0
    head = re.search(r"(operator\s*(?:\(\s*\)|\[\s*\]|\"\"\s*\w+|[^\s\w(]+|[\w:<>&*, ]+))\s*\(", code)
    if head:
        return "function", re.sub(r"\s+", " ", head.group(1))
    while i < len(code):
        if code[i] in "({[":
            flat += code[i]
            i = closing(code, i)
            continue
        flat += code[i]
        i += 1
    flat = re.sub(r"\brequires\s*[({]+\s*", "", flat)
    flat = re.sub(r"\b(decltype|alignas|noexcept|explicit)\(", "", flat)
    match = re.search(r"([\w:~]+)\s*\(", flat.split("=")[0])
    if match:
        return ("guide" if "->" in flat and re.match(r"\s*" + match.group(1), flat) else "function"), match.group(1)
    match = re.search(r"([\w:]+)\s*(?:\[|\{|=|;|$)", flat)
    return "variable", match.group(1) if match else ""


def dedent(text, indent):
    return re.sub(r"^ {0,%d}" % indent, "", text, flags=re.M)


def members(text, code, at, end, public):
    """Yields (kind, name, doc, code, plain comment) of each public declaration between at and end."""
    doc = []
    while at < end:
        line_end = text.find("\n", at, end)
        line_end = end if line_end < 0 else line_end
        rest = text[at:line_end]
        stripped = rest.strip()
        if not stripped:
            at = line_end + 1
            continue
        if stripped.startswith("//"):
            doc = doc + [stripped] if stripped.startswith("///") else []
            at = line_end + 1
            continue
        if stripped.startswith("#"):
            at = line_end + 1
            continue
        label = re.match(r"\s*(public|private|protected)\s*:(?!:)", rest)
        if label:
            public = label.group(1) == "public"
            doc, at = [], at + label.end()
            continue
        start = at + len(rest) - len(rest.lstrip())
        how, body, stop = find_end(code, start, end)
        trailing = re.compile(r"[ \t]*(///<[^\n]*(?:\n[ \t]*///<[^\n]*)*)").match(text, stop)
        at = trailing.end() if trailing else stop
        if text[start:stop].strip() == ";":
            continue
        if public:
            yield start, how, body, stop, doc, trailing.group(1) if trailing else ""
        doc = []


def signature(*declaration):
    """Returns a declaration without bodies and without parts that only the compiler needs; types keep their public
    members."""
    return re.sub(
        r"\[\[nodiscard\]\] |\binline (?!namespace)", "", full_signature(*declaration))


def full_signature(text, code, start, how, body, stop, indent):
    if how == "function":
        return dedent(text[start:body].rstrip(), indent) + ";"
    if how != "type":
        return dedent(text[start:stop], indent)
    head = behind_constraint(code, behind_template(code, start, stop), stop)
    if code.startswith("enum", head):
        return dedent(text[start:stop], indent)
    lines = [dedent(text[start:body].rstrip(), indent) + " {"]
    if code.startswith("class", head):
        lines.append(" public:")
    inside = indent + 2
    for member in members(text, code, body + 1, closing(code, body) - 1, not code.startswith("class", head)):
        first, how_, body_, stop_, doc, trailing = member
        plain = code[behind_template(code, first, stop_):stop_]
        if re.match(r"static_assert|friend (class|struct)|(class|struct) \w+;", plain):
            continue
        shown = signature(text, code, first, how_, body_, stop_, inside)
        if trailing:
            shown += "  " + re.sub(r"\n\s*", "\n" + " " * 4, trailing)
        lines += ["  " + part for part in doc] + [re.sub(r"^(?=.)", "  ", shown, flags=re.M)]
    return "\n".join(lines) + "\n};"


def namespaces(text, code, at, end, path=""):
    """Yields (name, first, last) of each namespace."""
    for match in re.finditer(r"\bnamespace\s+([\w:]+)?\s*\{", code[at:end]):
        start = at + match.start()
        if code[:start].count("{") - code[:start].count("}") == 0:
            yield match.group(1), at + match.end(), closing(code, at + match.end() - 1) - 1


def read_header(path):
    text = Path(path).read_text()
    code = mask(text)
    head = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        head.append(line[2:])
    header = Header(Path(path), "\n".join(head))
    for name, first, last in namespaces(text, code, 0, len(text)):
        if name != "dhp":
            continue
        for start, how, body, stop, doc, trailing in members(text, code, first, last, True):
            plain = code[behind_template(code, start, stop):stop]
            if re.match(r"(inline |using )?namespace|static_assert|(class|struct) [\w]+;|extern", plain):
                continue
            plain = plain[:body - stop] if body else plain
            kind, name_ = name_of(plain[behind_constraint(plain, 0, len(plain)):])
            if "::" in name_ or name_.endswith("<") or not name_ or re.match(r"template\s*<\s*>", code[start:stop]):
                continue
            shown = signature(text, code, start, how, body, stop, 0)
            if trailing:
                shown += "  " + trailing
            said = "\n".join(line[3:] for line in doc)
            header.entities.append(Entity(kind, name_, said, shown))
    return header


if __name__ == "__main__":
    import sys
    for argument in sys.argv[1:]:
        for entity in read_header(argument).entities:
            print(f"--- {argument}: {entity.kind} {entity.name}: {entity.doc}\n{entity.code}")
