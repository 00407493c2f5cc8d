#!/bin/sh
# For cron: remove closed tasks that are older than context_storage.cleanup_days.  Arguments go to `main.py
# cleanup`: name your configuration with --config, or it is looked for in the folder of the call.
set -eu
cd "$(dirname "$0")/.."
scripts/setup
exec .venv/bin/python main.py cleanup "$@"
