# Removes images of one person that nobody has used for long, or that are too many. Runs as that person, may be killed at any
# moment, and never waits for anybody: what is in use, or being fetched or built upon, is left for the next time.
#
#   sweep STORE RUN KEEP_DAYS MOST_KIB EVERY_MINUTES      0: no such limit
#
# RUN is a folder of theirs for this alone, whose name is short: podman takes no long one.
#
# Podman takes an image off its list before it removes the layers, and marks a layer before it removes its files: the next podman
# finishes what was begun, and nothing of it is taken for an image. What went is in STORE/swept; 75: nothing was looked at.
#
# STORE/layers holds what builds left for builds. Its layers lie upon images of the store, so it goes before any of those does, and
# always as a whole.

store=$1 run=$2 days=$3 most=$4 every=$5 use=$1/use

exec 9>>"$store/sweep.lock" || exit 1
flock -n 9 || exit 75
[ -e "$store/overlay-images/images.json" ] || [ -e "$store/layers" ] || exit 75
if [ "$every" -gt 0 ] && [ -n "$(find "$store/swept" -mmin "-$every" 2>/dev/null)" ]; then exit 75; fi
: >"$store/swept" || exit 1

leave() { # without root, podman leaves a process behind that keeps its user namespace
    for file in "$run"/*/pause.pid; do # until that runs its program, nobody may read its environment
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

leave # what one that was killed has left
mkdir -m 700 -p "$run" "$use" || exit 1
trap leave EXIT
trap 'exit 143' TERM INT HUP
read -r boot </proc/sys/kernel/random/boot_id
for file in "$store"/features/*; do
    [ "${file##*/}" = "$boot" ] || rm -rf -- "$file" # of before the last boot
done

kib() { # that all layers of this store take
    sed 's/"diff-size":/\n/g; $a\' "$1/overlay-layers/layers.json" 2>/dev/null | sed -n 's/^\([0-9]\{1,18\}\)[,}].*/\1/p' | {
        all=0
        while read -r one; do all=$((all + one / 1024)); done
        echo "$all"
    }
}

images() { # each: its id, and all names it has or had
    sed 's/{"id":/\n/g; $a\' "$store/overlay-images/images.json" 2>/dev/null | sed -n 's/^"\([0-9a-f]\{64\}\)",/\1 /p' | while read -r id facts; do
        echo "$id" $({ named names "$facts"; named names-history "$facts"; } | sort -u)
    done
}

named() { # $1 of the facts about an image
    printf '%s\n' "$2" | sed -n 's/^[^[]*"'"$1"'":\[\([^]]*\)\].*/\1/p; s/^[^[]*\[[^]]*\],"'"$1"'":\[\([^]]*\)\].*/\1/p' | tr -d '"' | tr , '\n'
}

file_of() { # the one that stands for this name
    hash=$(printf %s "$1" | sha256sum)
    echo "$use/$(printf %.32s "$hash")"
}

dated() { # what `images` tells, after the time of its last use: one that was never seen before counts as used now
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

drop_layers() { # 76: somebody builds
    [ -e "$store/layers" ] || [ -e "$store/layers.gone" ] || return 0
    dropped=$(kib "$store/layers")
    XDG_RUNTIME_DIR=$run flock -n -o -E 76 "$store/building" /bin/sh -c '
        cd "$1" && mkdir -p layers.gone || exit
        [ ! -e layers ] || mv layers "layers.gone/$$" || exit # no build finds half of them
        sed -n "s|^[^ ]* \($1/layers.gone/[^ ]*\) .*|\1|p" /proc/self/mounts | while read -r at; do umount --lazy "$at"; done
        rm -rf layers.gone 2>/dev/null
        [ ! -e layers.gone ] || # files of other users of the container
            podman --root="$2/s" --runroot="$2/k" --tmpdir="$2/l" --log-level=error unshare rm -rf "$1/layers.gone"
    ' drop "$store" "$run" 9>&- >/dev/null || return
    [ "$dropped" = 0 ] || echo "removed $dropped KiB of layers of earlier builds" >>"$store/swept"
}

remove() { # $1 its id, then its names; 75: somebody uses it, 76: somebody fetches or builds
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
        rm -rf "$1/libpod" # as one that fetches does
        exec podman --root="$1" --runroot="$2/i" --tmpdir="$2/j" --storage-driver=overlay --log-level=error rmi --force "$3"
    ' remove "$store" "$run" "$id" 9>&- >/dev/null
}

now=$(date +%s)
is_due() { # $1 when it was last used, $2 what is there, in KiB
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
    75) for name in $names; do touch -c -- "$(file_of "$name")"; done ;; # it is used now
    76) exit 0 ;;
    esac
done <"$run/list"
