# build.sh TARGET: compiles the peer to TARGET/ebin.
set -e
here=$(dirname "$0")
rm -rf "$1/ebin"
mkdir "$1/ebin"
erlc -Werror -o "$1/ebin" "$here"/*.erl
