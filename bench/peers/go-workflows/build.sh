#!/bin/sh
# build.sh TARGET SERVER: builds the peer, and puts it and the server, `temporal` or `restate`, into TARGET.
# Of Temporal's program this is the newest release that `go install` takes: a later one replaces a module by a folder.
set -eu
here=$(dirname "$0")
case $2 in
    temporal) GOBIN=$1 go install -trimpath -ldflags "-s -w" github.com/temporalio/cli/cmd/temporal@v1.5.1 ;;
    restate) npm install --ignore-scripts --no-audit --no-fund --prefix "$1" @restatedev/restate-server@1.7.12 ;;
esac
# In a copy, because the build adds the modules of the two SDKs to the list.
mkdir -p "$1/source"
cp "$here"/*.go "$here/go.mod" "$1/source"
go build -C "$1/source" -mod=mod -trimpath -ldflags "-s -w" -o "$1/peer" .
