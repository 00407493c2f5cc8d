"""Which names refuse a publication."""

import pytest

from agent.globs import alternatives
from agent.security.finding_catalogue import RULES, Risk
from agent.security.guarded_paths import guarded, notable
from agent.security.path_rules import LOOKED_AT, REFUSED


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (".github/workflows/ci.yml", "PA-02"),
        ("sub/.GitHub/Workflows/ci.yml", "PA-02"),
        (".gitlab-ci.yml", "PA-02"),
        (".circleci/config.yml", "PA-02"),
        ("Jenkinsfile", "PA-02"),
        ("CODEOWNERS", "PA-03"),
        (".github/CODEOWNERS", "PA-03"),
        ("docs/codeowners", "PA-03"),
        (".gitmodules", "PA-04"),
        (".lfsconfig", "PA-04"),
        (".git", "PA-01"),
        ("a/.GIT/config", "PA-01"),
        ("a/git~1/hooks/x", "PA-01"),
        (".git /config", "PA-01"),
        (".git::$INDEX_ALLOCATION/config", "PA-01"),
        (".g\u200cit/config", "PA-01"),
        ("a\\.git\\config", "PA-01"),
        (".github/workflows", "PA-02"),
        (".tekton/push.yaml", "PA-02"),
        ("buildspec.yml", "PA-02"),
        ("services/api/buildspec-release.yaml", "PA-02"),
        ("action.yml", "PA-02"),
        ("actions/setup/Action.yaml", "PA-02"),
        (".gitlab/agents/prod/config.yaml", "PA-02"),
        ("azure-pipelines-release.yml", "PA-02"),
        ("Jenkinsfile.nightly", "PA-02"),
        ("OWNERS", "PA-03"),
        ("pkg/api/OWNERS", "PA-03"),
        ("OWNERS_ALIASES", "PA-03"),
        (".mergify.yml", "PA-08"),
        (".github/mergify.yml", "PA-08"),
        (".mergify/config.yml", "PA-08"),
        ("renovate.json", "PA-08"),
        (".github/renovate.json5", "PA-08"),
        (".renovaterc.json", "PA-08"),
        (".github/dependabot.yml", "PA-08"),
        (".github/settings.yml", "PA-08"),
        (".goreleaser.yaml", "PA-09"),
        ("goreleaser.yml", "PA-09"),
        (".releaserc", "PA-09"),
        ("release-please-config.json", "PA-09"),
        ("release.sh", "PA-09"),
        ("scripts/release", "PA-09"),
        ("scripts/publish.py", "PA-09"),
        ("hack/release/push.sh", "PA-09"),
        ("tools/Deploy-Production.ts", "PA-09"),
        ("atlantis.yaml", "PA-02"),
        (".spacelift/config.yml", "PA-02"),
        (".ci-operator.yaml", "PA-02"),
        (".bors.toml", "PA-08"),
        ("ios/fastlane/Fastfile", "PA-09"),
        ("../x", "PA-07"),
        ("/etc/passwd", "PA-07"),
        ("a\nb", "PA-07"),
    ],
)
def test_guarded_paths_are_refused_by_their_rule(path, rule):
    assert [found[:5] for found in guarded(["ok.py", path])] == [rule]


@pytest.mark.parametrize(
    "path",
    [
        ".gitignore",
        "a/.gitkeep",
        ".github/ISSUE_TEMPLATE.md",
        "src/workflows/x.yml",
        "docs/git.md",
        "a/ä 日本.py",
        "x.git",
        "src/release.py",
        "docs/release.md",
        "scripts/release-notes.md",
        "scripts/deployment_test.go",
        "src/deploy/__init__.py",
        "interaction.yml",
        "src/owners.py",
        "renovate.md",
    ],
)
def test_ordinary_paths_are_not(path):
    assert guarded([path]) == []


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("tests/conftest.py", "PA-05"),
        ("package.json", "PA-05"),
        ("web/Dockerfile", "PA-05"),
        (".cargo/config.toml", "PA-05"),
        ("app/gradle/wrapper/gradle-wrapper.properties", "PA-05"),
        ("compose.yaml", "PA-05"),
        ("x.code-workspace", "PA-05"),
        ("netlify.toml", "PA-05"),
        ("AGENTS.md", "PA-06"),
        (".claude/settings.json", "PA-06"),
        (".claude.json", "PA-06"),
        (".agents/skills/x/run.sh", "PA-06"),
        ("sub/.kiro/hooks/a.json", "PA-06"),
        (".github/agents/x.md", "PA-06"),
        (".continue/rules/a.md", "PA-06"),
        ("QWEN.md", "PA-06"),
    ],
)
def test_what_executes_or_instructs_is_shown_and_not_refused(path, rule):
    assert [found[:5] for found in notable([path, "src/app.py"])] == [rule]
    assert guarded([path]) == []


EXECUTED = """
    pyproject.toml setup.cfg eslint.config.mjs web/vite.config.ts .eslintrc.cjs gulpfile.js pnpm-workspace.yaml go.mod
    crates/a/Cargo.toml pom.xml build.sbt project/Build.scala buildSrc/x.kt app/App.csproj Directory.Build.targets
    nuget.config Podfile Package.swift composer.json mix.exs rebar.config project.clj Setup.hs lib/dune a.cabal configure
    configure.ac autogen.sh meson.build cmake/x.cmake lib/BUILD MODULE.bazel rules/x.bzl tools/bazel Makefile.PL cpanfile
    .mise/tasks/build .tool-versions .gdbinit .vimrc .Rprofile .pdbrc infra/main.tf pulumi.yaml kustomization.yaml
"""


@pytest.mark.parametrize("path", EXECUTED.split())
def test_files_of_every_ecosystem_that_build_and_tools_execute_are_shown(path):
    assert guarded([path]) == []
    assert [finding.split()[:2] for finding in notable([path])] == [["PA-05", path]]


@pytest.mark.parametrize("path", ["build/a.txt", "configure/a.py", "dune/a.c", "src/project/a.py", "docs/config.js"])
def test_a_folder_of_such_a_name_says_nothing(path):
    assert guarded([path]) == notable([path]) == []


def test_each_group_of_the_list_has_a_known_rule_a_reason_and_patterns_that_fit():
    for group in (*REFUSED, *LOOKED_AT):
        assert (RULES[group.rule].risk is Risk.REFUSE) is (group in REFUSED)
        assert len(group.why) > 10
        for pattern in group.patterns:
            assert alternatives(pattern)


def test_a_finding_says_why():
    (said,) = guarded([".tekton/push.yaml"])
    assert said == "PA-02 .tekton/push.yaml is a pipeline file, which a build service runs with its own rights"


@pytest.mark.parametrize(
    ("pattern", "fits", "passes"),
    [
        ("infra", ["infra/a/b.tf", "Infra", "x/infra/y"], ["infrastructure/a", "a.infra"]),
        ("infra/", ["infra/a/b.tf"], ["x/infra/y"]),
        ("infra/prod", ["infra/prod/a", "infra/prod"], ["infra/production", "x/infra/prod"]),
        ("/Makefile", ["makefile"], ["sub/Makefile"]),
        ("*.tf", ["a.tf", "x/y/b.TF"], ["a.tfvars"]),
        ("**/secrets/*.{yml,yaml}", ["a/secrets/b.yaml", "secrets/b.yml"], ["a/secrets/b.json"]),
        ("ｉnfra/**", ["infra/a"], []),
    ],
)
def test_what_the_operator_refuses_or_wants_looked_at(pattern, fits, passes):
    for path in fits:
        assert guarded([path], refuse=(pattern,)) == [f"PA-11 {path} fits {pattern!r} of `policy.refuse`"]
        assert notable([path], look=(pattern,))[0].startswith(f"PA-12 {path} fits {pattern!r} of `policy.look`")
    assert guarded(passes, refuse=(pattern,)) == []
    assert not [found for found in notable(passes, look=(pattern,)) if found.startswith("PA-12")]


def test_what_the_operator_wants_looked_at_is_not_refused_but_for_git_and_what_is_refused_twice():
    paths = [".github/workflows/ci.yml", ".gitmodules", "renovate.json"]
    assert guarded(paths, look=(".github/workflows/", ".gitmodules")) == [
        "PA-08 renovate.json tells a machine what it may merge, update or set by itself"
    ]
    (shown,) = notable(paths[:1], look=(".github/workflows/",))
    said = "PA-12 .github/workflows/ci.yml fits '.github/workflows/' of `policy.look`; it is a pipeline file, which the"
    assert shown == f"{said} forge runs with its own rights"
    everything = {"look": ("**",)}
    assert [found[:5] for found in guarded([".git/config", "../x", "a\nb"], **everything)] == [
        "PA-01",
        "PA-07",
        "PA-07",
    ]
    assert guarded(["a.tf"], refuse=("*.tf",), **everything)[0].startswith("PA-11")


def test_a_folder_that_git_takes_for_a_repository_is_refused():
    assert guarded([], ["fixtures/repo"])[0].startswith("PA-10 fixtures/repo is taken for a repository")
    assert guarded([], ["fixtures/repo"], look=("fixtures/",)) == []
    assert guarded([], ["fixtures/repo"], look=("other/",)) != []
