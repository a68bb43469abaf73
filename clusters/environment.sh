# shellcheck shell=bash
# Sourced by every shell on a node (setup.sh adds it to ~/.bashrc): the programs of the code's own environment first, and
# one token for the whole cluster, without which Ray answers nobody.
export PATH="$HOME/golfray/.venv/bin:$PATH"
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="$HOME/.ray/auth_token"
export RAY_USAGE_STATS_ENABLED=0
