"""The layout: who may import whom, what stays light, where anything is printed, and what is packaged."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("programs", "metrics", "data", "optimize")
# our packages, and the libraries that each may use besides dspy and the standard library
ALLOWED = {
    # installed with dspy; programs need nothing else, so that they can be taken along by themselves
    "programs": {"programs", "pydantic", "jsonschema", "json_repair", "certifi"},
    "metrics": {"metrics", "orjson", "filelock", "rich", "numpy", "pandas", "matplotlib"},
    "data": {"data", "metrics", "datasets", "huggingface_hub", "pyarrow", "numpy", "orjson", "jsonschema", "bm25s",
             "wikipedia", "bs4", "httpx", "platformdirs"},
    "optimize": {"optimize", "programs", "metrics", "data", "gepa", "optuna", "filelock", "rich", "pydantic", "tqdm",
                 "numpy"},
    "eval.py": {"programs", "metrics", "data", "optimize"},
}  # fmt: skip
LIGHT = {"dspy", "pydantic"}  # all that may be imported when one of our modules is
COMMAND_LINES = {"eval.py", "metrics/command.py", "metrics/report/command.py"}
MAX_LINES = 400


def sources(package: str) -> list[Path]:
    place = ROOT / package
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST, *, at_start: bool = True) -> Iterator[tuple[str, bool]]:
    """(top-level module, whether it is imported when the module is) of every import; type-checking blocks left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], at_start) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:  # a relative one stays in its package
            yield str(node.module).split(".")[0], at_start
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, at_start=at_start and not deferred)


def is_command_line(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in tree.body)


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package):
    for path in sources(package):
        for module, _ in imports(ast.parse(path.read_text("utf-8"))):
            fine = module in ALLOWED[package] | {"dspy"} or module in sys.stdlib_module_names
            assert fine, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("package", ALLOWED)
def test_heavy_libraries_are_imported_where_they_are_used(package):
    ours = set(PACKAGES)
    for path in sources(package):
        for module, at_start in imports(ast.parse(path.read_text("utf-8"))):
            if at_start and module not in ours | LIGHT and module not in sys.stdlib_module_names:
                raise AssertionError(f"{name_of(path)} imports {module} at its top")


@pytest.mark.parametrize("module", [*PACKAGES, "eval", "programs.lms", "programs.options", "data.options",
                                    "metrics.options"])  # fmt: skip
def test_importing_a_package_imports_no_framework_and_configures_nothing(module):
    code = (
        f"import sys, logging; before = list(logging.root.handlers); import {module}; "
        "heavy = {'dspy', 'litellm', 'datasets', 'numpy', 'sympy', 'optuna', 'rich', 'pandas'} & set(sys.modules); "
        "assert not heavy, heavy; assert logging.root.handlers == before; print('light')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "light\n" and done.stderr == "", done.stderr


def test_importing_programs_with_dspy_leaves_dspys_settings_alone():
    code = (
        "import dspy; before = {**dspy.settings.config}; lm = dspy.settings.lm; "
        "import programs, programs.single, programs.centralized, programs.offline_lm, programs.team_lm, "
        "metrics.evaluate, data.toolhop, data.hotpotqa, optimize.phases; "
        "assert dspy.settings.lm is lm and {**dspy.settings.config} == before; "
        "import sys; heavy = {'litellm', 'datasets', 'optuna', 'sympy'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("package", ALLOWED)
def test_only_command_lines_print(package):
    for path in sources(package):
        tree = ast.parse(path.read_text("utf-8"))
        prints = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        fine = name_of(path) in COMMAND_LINES or is_command_line(tree)
        assert fine or not prints, f"{name_of(path)} prints in lines {prints}"


@pytest.mark.parametrize("package", ALLOWED)
def test_modules_are_short_explained_and_typed(package):
    for path in sources(package):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        assert text.count("\n") <= MAX_LINES, f"{name_of(path)} has more than {MAX_LINES} lines"
        if not tree.body:
            continue  # a package without any content
        assert ast.get_docstring(tree), f"{name_of(path)} does not say what it is for"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.returns is not None, f"{name_of(path)}:{node.lineno} {node.name} has no return type"


def test_nothing_names_a_place_of_the_machine_it_was_written_on():
    places = re.compile(r"(?<![\w.])/(?:work|root|home/(?!user\b)\w+|Users/\w+)/")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*"), ROOT / "pyproject.toml", *ROOT.glob(".ci/*"),
                 *(path for package in (*ALLOWED, "tests", "benchmarks") for path in sources(package))]:  # fmt: skip
        found = places.search(path.read_text("utf-8"))
        assert found is None or path == Path(__file__), f"{name_of(path)}: {found}"


def test_every_package_and_every_data_file_is_installed():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    listed = set(setup["packages"])
    found = {
        name_of(init.parent).replace("/", ".") for package in PACKAGES for init in (ROOT / package).rglob("__init__.py")
    }
    assert listed == found and setup["py-modules"] == ["eval"]
    patterns = setup["package-data"]
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if not path.is_file() or path.suffix in (".py", ".pyc") or path.name.startswith("."):
                continue
            owner = max((p for p in listed if path.is_relative_to(ROOT / p.replace(".", "/"))), key=len)
            inside = path.relative_to(ROOT / owner.replace(".", "/"))
            globs = [pattern.replace("**/", "") for pattern in patterns.get(owner, [])]
            fine = any(inside.match(pattern) for pattern in [*patterns.get(owner, []), *globs])
            assert fine, f"{name_of(path)} is not installed"
