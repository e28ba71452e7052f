#!/bin/sh
# fetch-jars.sh NAME FROM TO: has Maven copy the jars that FROM/pom.xml asks for into the folder TO (an
# absolute path), and checks them by FROM/jars.sha256, unless these very jars are there. Exit 2: there
# is no Maven.
set -eu

name=$1
from=$2
to=$3

copy_jars() {
    rm -rf "$to" "$to.part" &&
        mvn -B -q -f "$from/pom.xml" \
            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
            -DoutputDirectory="$to.part" -DincludeScope=runtime </dev/null &&
        (cd "$to.part" && sha256sum --check --strict --quiet -) <"$from/jars.sha256" &&
        mv "$to.part" "$to"
}

stamp=$(cat "$from/pom.xml" "$from/jars.sha256" | sha256sum)
if [ -d "$to" ] && [ -f "$to.stamp" ] && [ "$(cat "$to.stamp")" = "$stamp" ]; then
    exit 0
fi
command -v mvn >/dev/null 2>&1 || {
    echo "fetching $name needs Maven (mvn is not in PATH): install maven" >&2
    exit 2
}
printf 'fetching %s ... ' "$name"
# Once more where the network had a bad moment.
if copy_jars >"$to.log" 2>&1 || { sleep 5 && copy_jars >>"$to.log" 2>&1; }; then
    echo "done"
else
    echo "failed"
    tail -n 20 "$to.log" >&2
    exit 1
fi
echo "$stamp" >"$to.stamp"
