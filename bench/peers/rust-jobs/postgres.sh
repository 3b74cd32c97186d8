#!/bin/sh
# Succeeds if a server of PostgreSQL is installed.
set -eu
ls /usr/lib/postgresql/*/bin/initdb > /dev/null
