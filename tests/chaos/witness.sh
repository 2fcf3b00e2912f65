#!/bin/sh
# A job that testifies about itself: witness.sh SECONDS EXIT_CODE, with EVIDENCE naming a folder.
#
# It says when it starts and ends, in one file to which all jobs append, so that the order of lines is the order of
# events. As long as any process of it lives, it holds a lock on each of its devices and one on its job: whoever
# finds one taken says so.
say() { echo "$1 $HELIOSTAT_ATTEMPT_ID $$ ${CUDA_VISIBLE_DEVICES:--} $2" >>"$EVIDENCE/lines"; }

say start -
trap 'say term 143; exit 143' TERM
exec 3>>"$EVIDENCE/job-$HELIOSTAT_JOB_ID.lock"
flock -n 3 || say clash "job-$HELIOSTAT_JOB_ID"
descriptor=4
for device in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    eval "exec $descriptor>>'$EVIDENCE/$device.lock'"
    flock -n $descriptor || say clash "$device"
    descriptor=$((descriptor + 1))
done
if [ "$1" = until ]; then
    while [ ! -e "$EVIDENCE/finish" ]; do sleep 0.1; done
else
    sleep "$1" &
    wait $!
fi
say end "$2"
exit "$2"
