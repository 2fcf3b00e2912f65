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
rm -rf room why output code && mkdir room && cd room || exit 1
inside() { bwrap --unshare-all --share-net --die-with-parent --new-session --cap-drop ALL --clearenv --ro-bind-try /usr /usr --ro-bind-try /bin /bin --ro-bind-try /sbin /sbin --ro-bind-try /lib /lib --ro-bind-try /lib32 /lib32 --ro-bind-try /lib64 /lib64 --ro-bind-try /libx32 /libx32 --ro-bind-try /etc /etc --ro-bind-try /opt /opt --ro-bind-try /sw /sw --ro-bind-try /apps /apps --ro-bind-try /cvmfs /cvmfs --ro-bind-try /nix /nix --ro-bind-try /sys /sys --proc /proc --dev /dev --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --ro-bind-try /run/systemd/resolve /run/systemd/resolve --ro-bind-try /run/nscd /run/nscd --ro-bind-try /run/nslcd /run/nslcd --ro-bind-try /var/lib/sss/pipes /var/lib/sss/pipes --ro-bind /srv/h/environments/tools/micromamba /srv/h/environments/tools/micromamba --ro-bind-try /srv/wheels /srv/wheels --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin --setenv UV_NO_CONFIG 1 --setenv UV_PYTHON_DOWNLOADS never --setenv UV_NO_PROGRESS 1 --setenv NO_COLOR 1 --setenv UV_SYSTEM_CERTS 1 --setenv UV_NATIVE_TLS 1 --setenv UV_DEFAULT_INDEX https://pypi.example.org/simple --setenv UV_FIND_LINKS /srv/wheels --bind "$PWD" "$PWD" --chdir "$PWD" --setenv HOME "$PWD" --setenv UV_CACHE_DIR "$PWD/cache" --bind "$PWD/env" /srv/h/environments/ready/abc --remount-ro / -- "$@"; }
printf %s 'dependencies: [python]
' > environment.yml
mkdir env
run_step inside /srv/h/environments/tools/micromamba create --yes --no-rc --no-env --root-prefix cache/conda --prefix /srv/h/environments/ready/abc --file environment.yml || fail
inside /srv/h/environments/tools/micromamba list --no-rc --prefix /srv/h/environments/ready/abc --json > ../lock 2> ../output || fail
rm -rf cache
echo 'The environment is ready.'
