#!/bin/sh
# backup.sh STORE FILE.tar: copies a store into an archive (GNU tar) while a service fills it.
#
# What says how far was read, and what was received, goes in first; the list of parts next; the parts last. So the copy is the store as it
# was when that list was read: what came meanwhile is read or taken from `received` again, and counts once. Files that were replaced stay in
# a store for an hour, so the copy must take less than that.
set -eu
store=$1 archive=$2
# 1: a file changed or went while it was copied, as they do
tar -C "$store" -cf "$archive" --exclude=./manifest.json --exclude=./samples --exclude=./tails --exclude=./rollups . || [ $? -eq 1 ]
set -- ./manifest.json
for folder in samples tails rollups; do
    [ ! -d "$store/$folder" ] || set -- "$@" "./$folder"
done
tar -C "$store" -rf "$archive" "$@" || [ $? -eq 1 ]
