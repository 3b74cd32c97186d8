# build.sh TARGET: compiles the peer to TARGET/classes, and links the JRE that runs it as TARGET/java. If this JRE
# knows the flags of the row java-virtual-tuned, it is also linked as TARGET/java-tuned.
set -e
here=$(dirname "$0")
java=$(sh "$here/jre.sh" "$1")
rm -rf "$1/classes" "$1/java" "$1/java-tuned"
javac -d "$1/classes" "$here"/*.java "$here"/shared/*.java
ln -s "$java" "$1/java"
if "$java" -XX:+UseParallelGC -XX:+UseCompactObjectHeaders -version > /dev/null 2>&1; then
    ln -s "$java" "$1/java-tuned"
fi
