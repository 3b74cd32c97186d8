#!/bin/sh
# Makes the certificates and keys beside this file, for tests only. They are valid for a hundred years.
#
#   root ─► intermediate ─► ec (SEC 1), rsa (PKCS #1), ed25519 (PKCS #8), expired (with the key of ec)
#
# A chain has the leaf and the intermediate certificate; a test's client trusts the root alone.
set -eu
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
days=36500

openssl ecparam -name prime256v1 -genkey -noout -out "$scratch/root.key"
openssl req -x509 -new -key "$scratch/root.key" -days $days -subj "/CN=throng test root" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out root.pem

openssl ecparam -name prime256v1 -genkey -noout -out "$scratch/intermediate.key"
printf 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign\n' > "$scratch/ca.ext"
openssl req -new -key "$scratch/intermediate.key" -subj "/CN=throng test intermediate" |
    openssl x509 -req -CA root.pem -CAkey "$scratch/root.key" -set_serial 2 -days $days \
        -extfile "$scratch/ca.ext" -out "$scratch/intermediate.pem"

printf 'basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n' > "$scratch/leaf.ext"
issue() { # NAME KEY
    openssl req -new -key "$2" -subj "/CN=$1" |
        openssl x509 -req -CA "$scratch/intermediate.pem" -CAkey "$scratch/intermediate.key" \
            -days $days -extfile "$scratch/leaf.ext" -set_serial "$(($(printf '%s' "$1" | wc -c) + 2))" \
            -out "$scratch/$1.pem"
    cat "$scratch/$1.pem" "$scratch/intermediate.pem" > "$1.pem"
}
openssl ecparam -name prime256v1 -genkey -noout -out ec.key
openssl genrsa -traditional -out rsa.key 2048
openssl genpkey -algorithm ed25519 -out ed25519.key
issue ec ec.key
issue rsa rsa.key
issue ed25519 ed25519.key

touch "$scratch/index"
echo 77 > "$scratch/serial"
cat > "$scratch/ca.conf" <<CONF
[ca]
default_ca = it
[it]
database = $scratch/index
serial = $scratch/serial
new_certs_dir = $scratch
default_md = sha256
policy = any
[any]
commonName = supplied
CONF
openssl req -new -key ec.key -subj "/CN=expired" -out "$scratch/expired.csr"
openssl ca -batch -notext -config "$scratch/ca.conf" -cert "$scratch/intermediate.pem" \
    -keyfile "$scratch/intermediate.key" -startdate 20000101000000Z -enddate 20010101000000Z \
    -extfile "$scratch/leaf.ext" -in "$scratch/expired.csr" -out "$scratch/expired.pem"
cat "$scratch/expired.pem" "$scratch/intermediate.pem" > expired.pem
