"""Count the lines, classes, constants and words of the project.

scripts/check --figures
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.harness.paths import ROOT

_SHIPPED = ("dispatcher", "gateway", "workers", "uncork", "loadtests")
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
_SLOW = re.compile(r"\bpytest\.mark\.slow\b")


def main() -> None:
    """Print each figure with its name."""
    shipped = [path for package in _SHIPPED for path in _modules(package)]
    tests = _modules("tests")
    classes = [node for path in shipped for node in ast.walk(_parsed(path)) if isinstance(node, ast.ClassDef)]
    figures = {
        "lines of shipped Python": _lines(shipped),
        "modules in shipped packages": len(shipped),
        "classes in shipped packages": len(classes),
        "protocols among them": sum(map(_is_protocol, classes)),
        "lines of policies/cork.py": _lines([ROOT / "dispatcher/uncork_dispatcher/policies/cork.py"]),
        "constants in the dispatcher": sum(1 for path in _modules("dispatcher") for _ in _constants(path)),
        "lines of benchmarks with their tests": _lines(_modules("benchmarks")),
        "scripts": sum(1 for path in (ROOT / "scripts").iterdir() if not path.suffix),
        "lines of tests": _lines(tests),
        "marks slow in tests": sum(len(_SLOW.findall(path.read_text())) for path in tests),
        "words in docs and README": sum(
            len(path.read_text().split())
            for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        ),
    }
    for name, value in figures.items():
        print(f"{value:>8,}  {name}")


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _lines(paths: Iterable[Path]) -> int:
    return sum(path.read_text().count("\n") for path in paths)


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] in {"Protocol", "typing.Protocol"} for base in node.bases)


def _constants(path: Path) -> Iterator[str]:
    """Yield the names in capitals to which a module or a class binds a number."""
    for node in ast.walk(_parsed(path)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float()))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float()))
            ) if _CONSTANT.fullmatch(name):
                yield name


if __name__ == "__main__":
    main()
