"""Rules as data for `security/guarded_paths.py`: the files that only a person may change, and those that a person must
review, with reasons.

A pattern without `/` is a name in any folder, a pattern with `/` is a path from the root (`globs.py`). Matching a path
with a pattern ignores the case of letters. Braces in a pattern of paths hold alternatives. If several rules of
`path_rules.py` match a path, only one of them is reported. The operator adds patterns by `policy.refuse` and
`policy.look` of config.yaml. Most patterns come from the documentation of the product that reads the file.
"""

from __future__ import annotations

from typing import NamedTuple


class PathRule(NamedTuple):
    """One rule: its id (`rule`), patterns for files of one kind, and the reason of the rule (`why`).

    `why` continues a sentence that begins with rule and path: `PA-02 .tekton/push.yml is a pipeline file of
    Tekton`.
    """

    rule: str
    why: str
    patterns: tuple[str, ...]


_SCRIPTS = (
    "{release,publish,deploy}",
    "{release,publish,deploy}.{sh,bash,zsh,py,js,mjs,cjs,ts,rb,pl,php,go,ps1,cmd,bat}",
    "{release,publish,deploy}[-_]*.{py,js,mjs,ts,rb}",
)
_FOLDERS = ("scripts", "script", "bin", "ci", ".ci", "tools", "hack")

REFUSED = (
    PathRule(
        "PA-02",
        "is a pipeline file, which the forge runs with its own rights",
        (
            *("**/.{github,gitea,forgejo}/{workflows,actions}/**", "**/.gitlab-ci.{yml,yaml}", ".gitlab/ci/**"),
            *(
                ".gitlab/agents/**",
                ".gitlab/{auto-deploy-values,route-map}.{yml,yaml}",
                "bitbucket-pipelines.{yml,yaml}",
            ),
            *(".builds/**", ".build.{yml,yaml}"),
        ),
    ),
    PathRule("PA-02", "is an action, which runs in the pipelines of who uses it", ("action.{yml,yaml}",)),
    PathRule(
        "PA-02",
        "is a pipeline file, which a build service runs with its own rights",
        (
            *(".{circleci,buildkite,woodpecker,semaphore,teamcity,harness,kokoro,buddy,vela,tekton}/**",),
            *(".{travis,drone,woodpecker,cirrus,appveyor,vela,zuul,taskcluster,evergreen,packit,prow}.{yml,yaml}",),
            *("{appveyor,bitrise,buddy,codefresh,codemagic,wercker,screwdriver,shippable}.{yml,yaml}",),
            *(".{drone,cirrus}.{star,jsonnet}", ".{zuul.d,prow,copr}/**", "zuul.d/**", "{zuul,evergreen}.{yml,yaml}"),
            *("azure-pipelines*.{yml,yaml}", "cloudbuild*.{yml,yaml,json}", "buildspec*.{yml,yaml}"),
            *("appspec.{yml,yaml,json}", "{Jenkinsfile,Jenkinsfile.*,*.jenkinsfile}", ".ci-operator.{yml,yaml}"),
            *("atlantis.{yml,yaml}", "**/.spacelift/**"),
        ),
    ),
    PathRule(
        "PA-03",
        "says who must approve changes",
        (
            *("{CODEOWNERS,OWNERS,OWNERS_ALIASES}", "{,.github/}.pullapprove.{yml,yaml}", ".policy.{yml,yaml}"),
            *(".github/{reviewers,auto_assign,auto-assign}.{yml,yaml}",),
        ),
    ),
    PathRule("PA-04", "makes git fetch from other addresses", (".gitmodules", ".lfsconfig")),
    PathRule(
        "PA-08",
        "tells a machine what it may merge, update or set by itself",
        (
            *("{,.github/,.mergify/}{.mergify,mergify}.{yml,yaml}", ".mergify/**", ".dependabot/**"),
            *(".github/dependabot.{yml,yaml}", "{renovate,.renovaterc}.{json,json5}"),
            *(".renovaterc", ".{github,gitlab}/renovate.{json,json5}", "{,.github/}.kodiak.toml", "{.,}bors.toml"),
            *(".github/{settings,safe-settings,repository}.{yml,yaml}", ".bulldozer.{yml,yaml}", ".asf.yaml"),
            *(
                "{.scala-steward.conf,.whitesource,.pyup.yml,.snyk}",
                ".github/{bulldozer,mergequeue,merge-me}.{yml,yaml}",
            ),
        ),
    ),
    PathRule(
        "PA-09",
        "says how releases are made and published",
        (
            *("{.goreleaser,goreleaser}.{yml,yaml}", "{.releaserc,.releaserc.*,release.config.*}"),
            *(".release-it.*", "{.,}release-please*.{json,yml,yaml}", ".{release-please,semantic-release}*"),
            *(".changeset/config.json", "{.jreleaser,jreleaser}.{yml,yaml,toml,json}", "dist-workspace.toml"),
            *("{release,publish,deploy}.{sh,bash,zsh,ps1,cmd,bat}", "{release,publish,deploy}[-_]*.{sh,bash,zsh,ps1}"),
            *(f"**/{folder}/{name}" for folder in _FOLDERS for name in _SCRIPTS),
            *("**/{scripts,script,ci,.ci,hack}/{release,publish,deploy}/**",),
            *("{Fastfile,Appfile,Deliverfile,Matchfile,Capfile}", "**/fastlane/actions/**"),
        ),
    ),
)
"""Rules for files that only a person may change: this program does not publish a change of such a file, unless
`policy.look` matches the path of the file and `policy.refuse` does not."""

LOOKED_AT = (
    PathRule(
        "PA-05",
        "is executed at install, build or test",
        (
            *("{conftest,sitecustomize,usercustomize,setup,noxfile}.py", "tox.ini", "*.pth", "binding.gyp"),
            *("{,GNU}makefile", "*.mk", "{justfile,rakefile,Gemfile,Brewfile,Vagrantfile,Earthfile,Tiltfile,Procfile}"),
            *("package.json", ".{npmrc,pnpmfile.cjs,yarnrc,yarnrc.yml}", "**/.yarn/**", "bunfig.toml", "build.rs"),
            *(
                "**/.cargo/**",
                "{build,settings,init}.gradle{,.kts}",
                "**/gradle/wrapper/**",
                "{gradlew,mvnw}{,.bat,.cmd}",
            ),
            *(
                "**/.mvn/**",
                "*.gemspec",
                "CMakeLists.txt",
                "{dockerfile,Containerfile}",
                "{dockerfile,Containerfile}.*",
            ),
            *("*.dockerfile", "{docker-,}compose*.{yml,yaml}", "Taskfile.{yml,yaml}", "{flake,shell,default}.nix"),
            *(".bazelrc", "{.,}mise*.toml", ".envrc", ".pre-commit-config.{yml,yaml}", ".gitattributes"),
            *("{.,}lefthook*.{yml,yaml,toml,json}", "**/.{husky,githooks,git-hooks}/**", "skaffold.{yml,yaml}"),
            *("pyproject.toml", "setup.cfg", "{.,}pytest.ini", "hatch_build.py", "{fabfile,dodo,conanfile}.py"),
            *("*.config.{js,cjs,mjs,ts,cts,mts}", "{gulpfile,gruntfile,karma.conf}.*", "deno.{json,jsonc}"),
            *(
                ".{eslintrc,babelrc,mocharc,prettierrc,stylelintrc,lintstagedrc,commitlintrc,postcssrc,swcrc}",
                ".{eslintrc,babelrc,mocharc,prettierrc,stylelintrc,lintstagedrc,commitlintrc,postcssrc,swcrc}.*",
            ),
            *("pnpm-workspace.{yml,yaml}", "{turbo,nx,lerna}.json", "go.{mod,work}", "cargo.toml", "rust-toolchain*"),
            *(
                "{pom,build}.xml",
                "*.sbt",
                "**/project/*.scala",
                "build.{sc,mill}",
                "**/buildsrc/**",
                "gradle.properties",
            ),
            *("*.{csproj,fsproj,vbproj,vcxproj,proj,targets,props}", "nuget.config", "global.json"),
            *(".justfile", "{podfile,cartfile,dangerfile,guardfile,SConstruct,SConscript,wscript}", "package.swift"),
            *("composer.json", "phpunit.xml{,.dist}", ".php-cs-fixer{,.dist}.php", "rector.php"),
            *("mix.exs", "rebar.config{,.script}", "project.clj", "{deps,bb,shadow-cljs}.edn"),
            *("setup.{hs,lhs}", "stack.{yml,yaml}", "cabal.project", "{dune,dune-project}", "*.{cabal,opam}"),
            *("configure{,.ac,.in}", "{autogen,bootstrap}.sh", "meson.build", "*.cmake", "CMakePresets.json"),
            *("{BUILD,WORKSPACE}{,.bazel,.bzlmod}", "MODULE.bazel", "*.bzl", "**/tools/bazel", "{BUCK,.buckconfig}"),
            *("{makefile,build}.pl", "cpanfile", "dist.ini", "dagger.json"),
            *(".tool-versions", "**/.mise/**", "**/.config/mise/**"),
        ),
    ),
    PathRule(
        "PA-05",
        "is executed by a shell, debugger or interpreter that starts in the folder",
        (".{vimrc,gdbinit,lldbinit,pdbrc,pryrc,irbrc,rprofile,psqlrc}",),
    ),
    PathRule(
        "PA-05",
        "is executed by an editor that opens the folder",
        (
            *("**/.{devcontainer,vscode,idea,zed,fleet}/**", ".devcontainer.json", "*.code-workspace", ".exrc"),
            *(".nvim.lua", ".nvimrc", ".dir-locals.el", ".sublime-project", "*.sublime-project"),
        ),
    ),
    PathRule(
        "PA-05",
        "tells a host what to build and run",
        (
            *(
                "{netlify,fly,railway,wrangler}.toml",
                "{vercel,now,railway}.json",
                "wrangler.{json,jsonc}",
                "amplify.yml",
            ),
            *(
                "render.{yml,yaml}",
                "heroku.yml",
                "serverless.{yml,yaml,ts,js}",
                ".readthedocs.{yml,yaml}",
                "**/.platform/**",
            ),
            *("**/.ebextensions/**", "**/.do/**", ".platform.app.{yml,yaml}", "samconfig.toml"),
            *("*.{tf,tf.json,tofu}", "terragrunt.hcl", ".terraform.lock.hcl", "pulumi*.{yml,yaml}"),
            *("helmfile*.{yml,yaml}", "kustomization{,.yml,.yaml}", ".argocd-source*.{yml,yaml}"),
        ),
    ),
    PathRule(
        "PA-06",
        "is read by agents as instructions",
        (
            *("{AGENTS,AGENT,CLAUDE,GEMINI,SKILL,QWEN,WARP,CRUSH,CONVENTIONS,IFLOW}{,.local,.override}.md",),
            *(".{cursorrules,windsurfrules,clinerules,roorules,goosehints,replit.md,rules,airules}", ".mcp.json"),
            *(".makimono.{yaml,yml}", "mcp.json", "opencode.json{,c}", "crush.json", ".{roo,kilocode}modes"),
            *(".{claude,cursor,codex,gemini,windsurf,roo,aider}*",),
            *("**/.{claude,cursor,codex,gemini,windsurf,roo,aider}*/**",),
            *("**/.{agents,agent,kiro,continue,amazonq,junie,opencode}/**",),
            *("**/.{goose,trae,augment,factory,cline,clinerules,kilocode,crush,amp,openhands,devin,qwen,warp}/**",),
            *("**/.{qodo,codeium,tabnine,sourcegraph,cody,zencoder,rovodev,copilot,iflow,serena,ruler,makimono}/**",),
            *(".github/copilot-*", ".github/{instructions,prompts,chatmodes,agents,skills,copilot}/**"),
        ),
    ),
)
"""Rules for files that a person must review: a change of such a file is published, unless `policy.refuse` matches its
path, and the pull request lists the file for the reviewer."""
