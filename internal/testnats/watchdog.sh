# Run by testnats.go. $1 is the directory of the test's servers.
trap '' HUP INT TERM
cat >/dev/null # ends when the test, or its process, has

for pidfile in "$1"/*/pid; do
	if [ -s "$pidfile" ]; then
		kill -KILL "$(cat "$pidfile")"
	fi
done
tries=20
until rm -rf "$1" || [ $tries = 0 ]; do
	sleep 0.1
	tries=$((tries - 1))
done
