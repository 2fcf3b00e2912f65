#!/bin/sh
# Install what the benchmarks compare Heliostat with: task-spooler and Slurm from Debian (needs root), HyperQueue
# from PyPI in an environment of its own, configurable-http-proxy from npm. What cannot be installed is reported and left out; `python -m bench`
# then shows it as not available.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work="$here/.work"
mkdir -p "$work"

packages="task-spooler munge slurm-wlm slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin mariadb-server"

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=600 update -qq &&
        # shellcheck disable=SC2086
        apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $packages
}

install_hyperqueue() {
    [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv" || return 1
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check hyperqueue==0.27.0
}

install_configurable_http_proxy() {
    command -v npm >/dev/null || { echo "configurable-http-proxy: needs npm" >&2; return 1; }
    npm install --silent --no-fund --no-audit --prefix "$work/npm" configurable-http-proxy@5.3.0
}

failed=0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_packages >"$work/apt.log" 2>&1 || { echo "packages: failed, see $work/apt.log" >&2; failed=1; }
else
    echo "packages: need root and apt-get, skipped ($packages)" >&2
    failed=1
fi
install_hyperqueue || { echo "hyperqueue: failed" >&2; failed=1; }
install_configurable_http_proxy || { echo "configurable-http-proxy: failed" >&2; failed=1; }
exit $failed
