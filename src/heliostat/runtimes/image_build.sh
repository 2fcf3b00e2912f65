# Shell functions of the scripts that build and push images.
set -u

# Prints and saves the output of a step and returns its exit code, which a plain pipe would hide.
run_step() {
    { "$@"; echo $? > ../code; } 2>&1 | tee ../output
    return "$(cat ../code)"
}

fail() {
    tail -c 4000 ../output > ../why
    rm -rf env
    exit 1
}

needs() { # podman
    command -v "$1" >/dev/null && return
    echo "$1 is not installed on $HELIOSTAT_NODE." | tee ../output
    fail
}

# Prepares podman's folders. $1: prefix of each user's folder, on nodes where the engine creates none for this attempt. A lock is
# held while the folder is needed; what a killed build leaves is removed by the next container or build of this user.
enter() {
    needs podman
    set -- "$1$(id -u)"
    if [ -n "${HELIOSTAT_TOOL_RUN:-}" ]; then
        run=$HELIOSTAT_TOOL_RUN scratch=$HELIOSTAT_TOOL_SCRATCH store=$HELIOSTAT_TOOL_STORE
    else
        mkdir -m 700 "$1" 2>/dev/null
        if [ -L "$1" ] || [ ! -d "$1" ] || [ ! -O "$1" ]; then
            echo "$1 on $HELIOSTAT_NODE cannot be created, or belongs to another user. Ask an admin to check scratch in [containers]." | tee ../output
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
    flock -s 8 # the cleanup of images locks it exclusively
    export XDG_RUNTIME_DIR="$run"
    for file in containers.conf registries.conf; do
        [ -e "/etc/containers/$file" ] || continue
        case $file in
        containers.conf) export CONTAINERS_CONF="/etc/containers/$file" ;;
        *) export CONTAINERS_REGISTRIES_CONF="/etc/containers/$file" ;;
        esac
    done
    ignore_user_config
}

ignore_user_config() {
@IGNORE_USER_CONFIG@
}

leave() {
    in_root unshare rm -rf "$scratch" >/dev/null 2>&1
    for file in "$run"/*/pause.pid; do
        [ ! -s "$file" ] || kill -s KILL "$(cat "$file")" 2>/dev/null
    done
    rm -rf "$run" "$run.lock"
}

fetch() { # a base image, into this user's store; it counts as used now
    hash=$(printf %s "$1" | sha256sum)
    : >"$store/use/$(printf %.32s "$hash")"
    flock -o "$store/lock" /bin/sh -c @FETCH@ fetch "$store" "$run" "$1" ''
}

# Reuse layers of this user's earlier builds on this node. Only one build at a time can: a concurrent build starts without them.
take_layers() {
    mkdir -m 700 -p "$store/layers" && exec 6>>"$store/layers.lock" && flock -n 6 || return 0
    : >"$store/layers.lock" # used now
    root=$store/layers
    rm -rf "$root/libpod" # podman's database holds the paths of the previous build
    if grep -qs '"id"' "$root/overlay-containers/containers.json"; then # left by a killed build
        in_root rm --force $(in_root ps --all --quiet --external) >/dev/null
    fi
}

in_root() {
    podman --root="$root" --runroot="$run/c" --tmpdir="$run/t" --storage-driver=overlay \
        --storage-opt="additionalimagestore=$store" --cgroup-manager=cgroupfs --events-backend=none --log-level=error "$@"
}
