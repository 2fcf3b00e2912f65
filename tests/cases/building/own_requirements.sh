#!/bin/sh
set -u
tell() { { "$@"; echo $? > ../code; } 2>&1 | tee ../said; return "$(cat ../code)"; }
fail() { tail -c 4000 ../said > ../why; rm -rf env cache; exit 1; }
export PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export UV_NO_CONFIG=1
export UV_PYTHON_DOWNLOADS=never
export UV_NO_PROGRESS=1
export NO_COLOR=1
export UV_SYSTEM_CERTS=1
export UV_NATIVE_TLS=1
export UV_DEFAULT_INDEX=https://pypi.example.org/simple
export UV_FIND_LINKS=/srv/wheels
rm -rf room why said code && mkdir room && cd room || exit 1
inside() { "$@"; }
printf %s 'torch
' > requirements.txt
tell /srv/h/environments/tools/uv venv --quiet --relocatable --python /usr/bin/python3.11 env || fail
if /srv/h/environments/tools/uv pip compile --quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock --only-binary :all: requirements.txt > ../said 2>&1 &&
    tell /srv/h/environments/tools/uv pip sync --python env/bin/python --only-binary :all: --require-hashes lock; then :; else
    echo 'Not all of it is there as wheels. Building from source where it must be …'
    rm -rf env lock
    tell inside /srv/h/environments/tools/uv venv --quiet --relocatable --python /usr/bin/python3.11 env || fail
    tell inside /srv/h/environments/tools/uv pip compile --quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock requirements.txt || fail
    tell inside /srv/h/environments/tools/uv pip sync --python env/bin/python lock || fail
fi
echo 'Compiling …'
inside /usr/bin/python3.11 -I -S -m compileall -q -j 0 env/lib > /dev/null 2>&1 || true
rm -rf cache
echo 'The environment is ready.'
