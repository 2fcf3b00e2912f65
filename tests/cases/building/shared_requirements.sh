#!/bin/sh
set -u
run_step() { { "$@"; echo $? > ../code; } 2>&1 | tee ../output; return "$(cat ../code)"; }
fail() { tail -c 4000 ../output > ../why; rm -rf env cache; exit 1; }
export PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export UV_NO_CONFIG=1
export UV_PYTHON_DOWNLOADS=never
export UV_NO_PROGRESS=1
export NO_COLOR=1
export UV_SYSTEM_CERTS=1
export UV_NATIVE_TLS=1
export UV_DEFAULT_INDEX=https://pypi.example.org/simple
export UV_FIND_LINKS=/srv/wheels
export HOME=/nowhere
export UV_CACHE_DIR=/srv/h/environments/cache
rm -rf room why output code && mkdir room && cd room || exit 1
inside() { bwrap --unshare-all --share-net --die-with-parent --new-session --cap-drop ALL --clearenv --ro-bind-try /usr /usr --ro-bind-try /bin /bin --ro-bind-try /sbin /sbin --ro-bind-try /lib /lib --ro-bind-try /lib32 /lib32 --ro-bind-try /lib64 /lib64 --ro-bind-try /libx32 /libx32 --ro-bind-try /etc /etc --ro-bind-try /opt /opt --ro-bind-try /sw /sw --ro-bind-try /apps /apps --ro-bind-try /cvmfs /cvmfs --ro-bind-try /nix /nix --ro-bind-try /sys /sys --proc /proc --dev /dev --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --ro-bind-try /run/systemd/resolve /run/systemd/resolve --ro-bind-try /run/nscd /run/nscd --ro-bind-try /run/nslcd /run/nslcd --ro-bind-try /var/lib/sss/pipes /var/lib/sss/pipes --ro-bind /srv/h/environments/tools/uv /srv/h/environments/tools/uv --ro-bind-try /srv/wheels /srv/wheels --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin --setenv UV_NO_CONFIG 1 --setenv UV_PYTHON_DOWNLOADS never --setenv UV_NO_PROGRESS 1 --setenv NO_COLOR 1 --setenv UV_SYSTEM_CERTS 1 --setenv UV_NATIVE_TLS 1 --setenv UV_DEFAULT_INDEX https://pypi.example.org/simple --setenv UV_FIND_LINKS /srv/wheels --bind "$PWD" "$PWD" --chdir "$PWD" --setenv HOME "$PWD" --setenv UV_CACHE_DIR "$PWD/cache" --remount-ro / -- "$@"; }
printf %s 'torch
' > requirements.txt
run_step /srv/h/environments/tools/uv venv --quiet --relocatable --python /usr/bin/python3.11 env || fail
if /srv/h/environments/tools/uv pip compile --quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock --only-binary :all: requirements.txt > ../output 2>&1 &&
    run_step /srv/h/environments/tools/uv pip sync --python env/bin/python --only-binary :all: --require-hashes lock; then :; else
    echo 'Some packages are not available as wheels. Building them from source …'
    rm -rf env lock
    run_step inside /srv/h/environments/tools/uv venv --quiet --relocatable --python /usr/bin/python3.11 env || fail
    run_step inside /srv/h/environments/tools/uv pip compile --quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock requirements.txt || fail
    run_step inside /srv/h/environments/tools/uv pip sync --python env/bin/python lock || fail
fi
echo 'Compiling …'
inside /usr/bin/python3.11 -I -S -m compileall -q -j 0 env/lib > /dev/null 2>&1 || true
rm -rf cache
echo 'The environment is ready.'
