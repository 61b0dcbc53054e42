#!/bin/sh
# A good minute of customers for go run ./internal/verify/demo/coupon -serve 127.0.0.1:8080: two
# users want a coupon at the same time. One of them clicks again at once, and once more later. A
# redis-server whose process ID is given is frozen twice meanwhile, each time for three seconds,
# which is longer than a lease lasts.
claim() { curl -s -o /dev/null -m 20 -H "Idempotency-Key: $2" -d '{"size":"M","think":"300ms"}' "http://127.0.0.1:8080/claim/$1"; }
for i in $(seq 40); do
	claim "alice-$i" k1 & sleep 0.05
	claim "bob-$i" k1 &
	claim "alice-$i" k1 # refused: the first click is under way
	sleep 0.4
	claim "alice-$i" k1 & # the first answer again
	case "$i" in 14 | 26)
		[ -z "$1" ] || { kill -STOP "$1"; sleep 3; kill -CONT "$1"; } ;;
	esac
	sleep 0.8
done
wait
