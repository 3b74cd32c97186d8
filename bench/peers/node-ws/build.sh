# build.sh TARGET: copies the server to TARGET, and installs the packages of package-lock.json there.
set -e
here=$(dirname "$0")
cp "$here/server.mjs" "$here/package.json" "$here/package-lock.json" "$1"
npm ci --no-audit --no-fund --prefix "$1"
