#!/bin/sh
# What the scripts that build and push images have in common.
set -u

# Shows what a step says and keeps its last words; a pipe would hide whether it succeeded.
tell() {
    { "$@"; echo $? > ../code; } 2>&1 | tee ../said
    return "$(cat ../code)"
}

fail() {
    tail -c 4000 ../said > ../why
    rm -rf env
    exit 1
}

needs() { # podman
    command -v "$1" >/dev/null && return
    echo "$1 is not installed on $HELIOSTAT_NODE." | tee ../said
    fail
}

# $1 how the folder of each person begins, on nodes where none is laid out for this attempt. Somebody holds its lock as long as
# it is needed; what is left of one that was killed goes with the next container or build of this person.
enter() {
    needs podman
    set -- "$1$(id -u)"
    if [ -n "${HELIOSTAT_TOOL_RUN:-}" ]; then
        run=$HELIOSTAT_TOOL_RUN scratch=$HELIOSTAT_TOOL_SCRATCH store=$HELIOSTAT_TOOL_STORE
    else
        mkdir -m 700 "$1" 2>/dev/null
        if [ -L "$1" ] || [ ! -d "$1" ] || [ ! -O "$1" ]; then
            echo "$1 on $HELIOSTAT_NODE cannot be made, or is not yours; tell an admin: scratch in [containers]" | tee ../said
            fail
        fi
        run=$1/b$HELIOSTAT_ATTEMPT_ID scratch=$1/b$HELIOSTAT_ATTEMPT_ID/s store=$1/images
        exec 9>>"$run.lock"
        flock 9
        trap leave EXIT
        trap 'exit 143' TERM INT
        mkdir -m 700 -p "$run" "$scratch" "$store"
    fi
    root=$scratch
    mkdir -m 700 -p "$store/use"
    exec 8>>"$store/building"
    flock -s 8 # whoever removes images needs it alone
    export XDG_RUNTIME_DIR="$run"
    for file in containers.conf registries.conf; do
        [ -e "/etc/containers/$file" ] || continue
        case $file in
        containers.conf) export CONTAINERS_CONF="/etc/containers/$file" ;;
        *) export CONTAINERS_REGISTRIES_CONF="/etc/containers/$file" ;;
        esac
    done
    without_own_settings
}

without_own_settings() {
own=$HOME/.config/containers
if [ -e "$own/registries.conf.d" ] || [ -e "$own/registries.d" ] || [ -e "$own/certs.d" ]; then
    mkdir -p "$run/home/.config/containers"
    ln -sfn "$own/auth.json" "$run/home/.config/containers/auth.json"
    ln -sfn "$HOME/.docker" "$run/home/.docker"
    export HOME="$run/home"
fi
}

leave() {
    in_root unshare rm -rf "$scratch" >/dev/null 2>&1
    for file in "$run"/*/pause.pid; do
        [ ! -s "$file" ] || kill -s KILL "$(cat "$file")" 2>/dev/null
    done
    rm -rf "$run" "$run.lock"
}

fetch() { # an image to begin with, into those this person has here; it counts as used now
    hash=$(printf %s "$1" | sha256sum)
    : >"$store/use/$(printf %.32s "$hash")"
    flock -o "$store/lock" /bin/sh -c 'store=$1 run=$2 image=$3 archive=$4 noted=$5
own=$HOME/.config/containers
if [ -e "$own/registries.conf.d" ] || [ -e "$own/registries.d" ] || [ -e "$own/certs.d" ]; then
    mkdir -p "$run/home/.config/containers"
    ln -sfn "$own/auth.json" "$run/home/.config/containers/auth.json"
    ln -sfn "$HOME/.docker" "$run/home/.docker"
    export HOME="$run/home"
fi
in_store() {
    podman --root="$store" --runroot="$run/i" --tmpdir="$run/j" --storage-driver=overlay \
        --log-level=error "$@"
}
rm -rf "$store/libpod" # knows where the run before kept its things, and minds that this one keeps them elsewhere
in_store image exists "$image" && exit
[ -z "$archive" ] || { in_store load --quiet --input "$archive" >/dev/null; exit; }
echo "heliostat: fetching $image" >&2
said=$(in_store pull --quiet --signature-policy=/etc/containers/policy.json "$image" 2>&1 >/dev/null) && exit
printf '"'"'%s\n'"'"' "$said" >&2
[ -z "$noted" ] || { echo "failed $image"; printf %s "$said" | tail -c 2000; } >"$noted"
exit 125
' fetch "$store" "$run" "$1" ''
}

# Layers of this person's earlier builds here are used again. They are one build's at a time: another that runs beside it begins anew.
take_layers() {
    mkdir -m 700 -p "$store/layers" && exec 6>>"$store/layers.lock" && flock -n 6 || return 0
    : >"$store/layers.lock" # used now
    root=$store/layers
    rm -rf "$root/libpod" # knows where the build before kept its things
    if grep -qs '"id"' "$root/overlay-containers/containers.json"; then # of one that was killed
        in_root rm --force $(in_root ps --all --quiet --external) >/dev/null
    fi
}

in_root() {
    podman --root="$root" --runroot="$run/c" --tmpdir="$run/t" --storage-driver=overlay \
        --storage-opt="additionalimagestore=$store" --cgroup-manager=cgroupfs --events-backend=none --log-level=error "$@"
}
export PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
rm -rf room why said code && mkdir -p room/env room/context && cd room || exit 1
printf %s 'FROM docker.io/library/python:3.11
' > Containerfile
enter /var/tmp/heliostat-
take_layers
tell fetch docker.io/library/python:3.11 || fail
tell in_root build --isolation=chroot --pull=missing --format=oci --network=host --signature-policy=/etc/containers/policy.json --tag=localhost/torch:2-0123456789abcdef --file=Containerfile context || fail
tell in_root save --quiet --format=oci-archive --uncompressed --output=env/image.tar localhost/torch:2-0123456789abcdef || fail
in_root image inspect --format '{{.Digest}}' localhost/torch:2-0123456789abcdef > lock
rm -rf ../.heliostat-context
echo 'The image is ready.'
