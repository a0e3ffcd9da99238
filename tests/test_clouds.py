"""What others run from the repository: workflows, a devcontainer, Binder, a box for a grader."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lib.basics.errors import numbered

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
PINNED = (ROOT / "tests" / "pins" / "stack.txt").read_text(encoding="utf-8")


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_there_is_a_workflow_for_tests_the_site_and_a_version() -> None:
    assert [path.stem for path in WORKFLOWS] == ["nightly", "publish", "site", "test"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_make_alone(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        assert (found := re.fullmatch(r"make ([a-z-]+)( PYTHON=python)?", command)), command
        assert found[1] in TARGETS, f"there is no target {found[1]} in the Makefile"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_only_a_job_that_publishes_may_write(workflow: Path) -> None:
    known = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert known["permissions"] == {"contents": "read"}
    for job in known["jobs"].values():
        assert job["timeout-minutes"] <= (350 if workflow.stem == "nightly" else 90)
        if "permissions" in job:
            assert not any("run" in step for step in job["steps"]), "it runs code of ours with the right to write"


def test_every_supported_python_is_tested() -> None:
    known = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    versions = known["jobs"]["test"]["strategy"]["matrix"]["python"]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert versions[0] == oldest.removeprefix(">=")
    assert versions == [f"3.{minor}" for minor in range(int(versions[0][2:]), 15)]


@pytest.mark.slow
@pytest.mark.process
def test_workflows_fit_their_schema() -> None:
    """By check-jsonschema, which has the schema with it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    found = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_devcontainer_opens_on_the_overview() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8")
    known = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    assert known["postCreateCommand"].split()[:2] == ["make", "setup"]
    opened = known["customizations"]["codespaces"]["openFiles"]
    assert opened == ["puzzles/index.ipynb"] and all((ROOT / name).exists() for name in opened)


def test_binder_installs_the_project() -> None:
    script = ROOT / ".binder" / "postBuild"
    assert script.stat().st_mode & 0o100 and '--editable ".[lab]"' in script.read_text(encoding="utf-8")
    version = (ROOT / ".binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    assert re.fullmatch(r"python-3\.1[1-4]", version)


def test_the_box_for_a_grader_ends_without_rights_and_without_solutions() -> None:
    text = (ROOT / "tools" / "grader" / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", text).splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users[-1] not in ("root", "0")
    installs = next(line for line in lines if "pip install" in line and line.startswith("RUN"))
    assert "--no-deps /src" in installs and "/solutions" in installs.split("rm -r")[1]
    needed = re.findall(r"stack.txt ([a-z -]+?) +&&", installs)[0].split()
    assert all(re.search(rf"^{re.escape(name)}==", PINNED, re.M) for name in needed), numbered("package", needed)
    assert '"grade", "--each"' in text
