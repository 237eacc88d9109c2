# One device: the suite of one engine.
. /test/lib.sh
rxe_up 0
conformance_engine "$engine" verbs || failed=1
exit $failed
