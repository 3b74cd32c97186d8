# build.sh TARGET: compiles the peer to TARGET/classes, with the jars that it needs in TARGET/jars and the packages of
# Maven in TARGET/repository; links the JRE that runs it as TARGET/java, and writes the options that this JRE needs
# to TARGET/options. If this JRE knows the flags of the row pekko-tuned, it is also linked as TARGET/java-tuned.
set -e
here=$(dirname "$0")
java=$(sh "$here/../jre.sh" "$1")
rm -rf "$1/sources" "$1/classes" "$1/jars" "$1/java" "$1/java-tuned" "$1/maven-status"
mkdir -p "$1/sources"
cp "$here"/*.java "$here"/../shared/*.java "$1/sources"
mvn --batch-mode --quiet --file "$here/pom.xml" -Dmaven.repo.local="$1/repository" -Dtarget="$1" compile
ln -s "$java" "$1/java"
# A JRE that knows this flag prints warnings about Pekko without it.
options=--sun-misc-unsafe-memory-access=allow
if "$java" "$options" -version > /dev/null 2>&1; then
    echo "$options" > "$1/options"
else
    : > "$1/options"
fi
if "$java" -XX:+UseParallelGC -XX:+UseCompactObjectHeaders -version > /dev/null 2>&1; then
    ln -s "$java" "$1/java-tuned"
fi
