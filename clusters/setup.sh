#!/usr/bin/env bash
# Sets up a node, from the code that was unpacked into ~/golfray. What is there already is not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

line='source ~/golfray/clusters/environment.sh'
grep -qsxF "$line" ~/.bashrc || echo "$line" >> ~/.bashrc

missing=()
for command in g++ make; do
  command -v "$command" >/dev/null || missing+=("$command")
done
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if ((${#missing[@]})); then
  sudo -n apt-get update -qq
  sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

make .venv/installed-demo
