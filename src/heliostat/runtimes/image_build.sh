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
@WITHOUT_OWN_SETTINGS@
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
    flock -o "$store/lock" /bin/sh -c @FETCH@ fetch "$store" "$run" "$1" ''
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
