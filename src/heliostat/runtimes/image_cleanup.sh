# Image cleanup: removes images of one user that were not used for long, or that exceed the size limit. Runs as that user, may be
# killed at any moment, and never waits for a lock: images that are in use, being fetched or built upon stay until the next cleanup.
#
#   sweep STORE RUN KEEP_DAYS MOST_KIB EVERY_MINUTES      0: no such limit
#
# RUN is a folder of the user for this cleanup only, with a short path, since podman rejects long ones.
#
# Podman removes an image from its list before it removes the layers, and marks a layer before it removes its files. So the next
# podman completes an interrupted removal. Removed images are listed in STORE/swept. Exit code 75: nothing was checked.
#
# STORE/layers holds layers that builds reuse. They depend on images of the store, so they are removed first, and always all.

store=$1 run=$2 days=$3 most=$4 every=$5 use=$1/use

exec 9>>"$store/sweep.lock" || exit 1
flock -n 9 || exit 75
[ -e "$store/overlay-images/images.json" ] || [ -e "$store/layers" ] || exit 75
if [ "$every" -gt 0 ] && [ -n "$(find "$store/swept" -mmin "-$every" 2>/dev/null)" ]; then exit 75; fi
: >"$store/swept" || exit 1

leave() { # without root, podman leaves a process behind that keeps its user namespace
    for file in "$run"/*/pause.pid; do # its environment is readable only after its exec
        tries=100
        while read -r pid <"$file" && [ -e "/proc/$pid" ] && ! grep -qsz . "/proc/$pid/environ" && [ "$tries" -gt 0 ]; do
            tries=$((tries - 1))
            sleep 0.05
        done 2>/dev/null
    done
    for file in $(grep -lszxF -- "XDG_RUNTIME_DIR=$run" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        [ "${pid%/*}" = "$$" ] || kill -s KILL "${pid%/*}" 2>/dev/null
    done
    rm -rf -- "$run"/*
}

leave # clean up after a killed run
mkdir -m 700 -p "$run" "$use" || exit 1
trap leave EXIT
trap 'exit 143' TERM INT HUP
read -r boot </proc/sys/kernel/random/boot_id
for file in "$store"/features/*; do
    [ "${file##*/}" = "$boot" ] || rm -rf -- "$file" # from an earlier boot
done

kib() { # the size of all layers of this store
    sed 's/"diff-size":/\n/g; $a\' "$1/overlay-layers/layers.json" 2>/dev/null | sed -n 's/^\([0-9]\{1,18\}\)[,}].*/\1/p' | {
        all=0
        while read -r one; do all=$((all + one / 1024)); done
        echo "$all"
    }
}

images() { # one line per image: its id, and all names it has or had
    sed 's/{"id":/\n/g; $a\' "$store/overlay-images/images.json" 2>/dev/null | sed -n 's/^"\([0-9a-f]\{64\}\)",/\1 /p' | while read -r id facts; do
        echo "$id" $({ named names "$facts"; named names-history "$facts"; } | sort -u)
    done
}

named() { # the list $1 in the JSON of an image
    printf '%s\n' "$2" | sed -n 's/^[^[]*"'"$1"'":\[\([^]]*\)\].*/\1/p; s/^[^[]*\[[^]]*\],"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr -d '"' | tr , '\n'
}

file_of() { # the lock file of this image name
    hash=$(printf %s "$1" | sha256sum)
    echo "$use/$(printf %.32s "$hash")"
}

dated() { # lines of `images` with the time of the last use in front; an image without a lock file counts as used now
    while read -r id names; do
        last=0
        for name in ${names:-$id}; do
            file=$(file_of "$name")
            [ -e "$file" ] || : >"$file"
            at=$(stat -c %Y -- "$file")
            [ "$at" -le "$last" ] || last=$at
        done
        echo "$last $id ${names:-$id}"
    done
}

drop_layers() { # 76: a build is running
    [ -e "$store/layers" ] || [ -e "$store/layers.gone" ] || return 0
    dropped=$(kib "$store/layers")
    XDG_RUNTIME_DIR=$run flock -n -o -E 76 "$store/building" /bin/sh -c '
        cd "$1" && mkdir -p layers.gone || exit
        [ ! -e layers ] || mv layers "layers.gone/$$" || exit # so that no build finds an incomplete set
        sed -n "s|^[^ ]* \($1/layers.gone/[^ ]*\) .*|\1|p" /proc/self/mounts | while read -r at; do umount --lazy "$at"; done
        rm -rf layers.gone 2>/dev/null
        [ ! -e layers.gone ] || # files of other users of the container
            podman --root="$2/s" --runroot="$2/k" --tmpdir="$2/l" --log-level=error unshare rm -rf "$1/layers.gone"
    ' drop "$store" "$run" 9>&- >/dev/null || return
    [ "$dropped" = 0 ] || echo "removed $dropped KiB of layers of earlier builds" >>"$store/swept"
}

remove() { # $1: image id, then its names. 75: the image is in use; 76: a fetch or build is running
    id=$1
    shift
    set -- "$@" --
    while [ "$1" != -- ]; do # each name becomes a lock around what follows
        name=$1
        shift
        set -- "$@" flock -n -o -E 75 "$(file_of "$name")"
    done
    shift
    XDG_RUNTIME_DIR=$run flock -n -o -E 76 "$store/building" flock -n -o -E 76 "$store/lock" "$@" /bin/sh -c '
        rm -rf "$1/libpod" # as in the script that fetches images
        exec podman --root="$1" --runroot="$2/i" --tmpdir="$2/j" --storage-driver=overlay --log-level=error rmi --force "$3"
    ' remove "$store" "$run" "$id" 9>&- >/dev/null
}

now=$(date +%s)
is_due() { # $1: last use, $2: size of the store in KiB
    [ "$days" -gt 0 ] && [ "$1" -lt $((now - days * 86400)) ] || { [ "$most" -gt 0 ] && [ "$2" -gt "$most" ]; }
}

images | dated | sort -n >"$run/list"
size=$(kib "$store")
last=$(stat -c %Y -- "$store/layers.lock" 2>/dev/null)
if [ -e "$store/layers.gone" ] || is_due "${last:-$now}" $((size + $(kib "$store/layers"))); then drop_layers || exit 0; fi
while read -r last id names; do
    is_due "$last" "$size" || break
    drop_layers || exit 0
    remove "$id" $names
    case $? in
    0)
        before=$size size=$(kib "$store")
        echo "removed $((before - size)) KiB ${names%% *}" >>"$store/swept"
        ;;
    75) for name in $names; do touch -c -- "$(file_of "$name")"; done ;; # in use
    76) exit 0 ;;
    esac
done <"$run/list"
